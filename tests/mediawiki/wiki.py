"""MediaWiki on a host of its own: Debian's packages, installed by MediaWiki's own
installer, served by Apache with mod_php, with a page that is expensive to render.
"""

import contextlib
import http.client
import itertools
import json
import re
import shutil
import subprocess
import time
from pathlib import Path

from crowd import Crowd
from host import Host
from roots import PATIENCE_S, eventually, expect

SITE = Path(__file__).resolve().parent / "site"
# The rounds `recommended` use the settings that it recommends.
DOCUMENT = Path(__file__).resolve().parents[2] / "docs/guide/mediawiki.md"
RECOMMENDED = re.compile(r"In `LocalSettings.php`, on every web server:\n\n```php\n(.*?)```", re.S)
SUITE = "trixie"
ROOT_PACKAGES = "apache2,imagemagick,libapache2-mod-php,mediawiki,php-apcu,php-sqlite3,poolcounter"
# The size of the root, and while mmdebstrap makes it, with the packages' files.
ROOT_MB, PEAK_MB = 670, 1000
ADDRESS, PORT = "127.0.0.1", 80
PAGE = "/mediawiki/index.php?title=Dear"
SCRIPT = "php /usr/share/mediawiki/maintenance/run.php"
INSTALL = (f"{SCRIPT} install --dbtype sqlite --dbpath /srv/database"
           f" --server http://{ADDRESS} --confpath /etc/mediawiki --pass correct-horse-9 Wiki Admin")

APACHE = """
ServerName wiki
StartServers {processes}
MinSpareServers 1
MaxSpareServers 1000
ServerLimit {processes}
MaxRequestWorkers {processes}
# A connection has one request, so that each reader may get any process.
KeepAlive Off
ListenBacklog 1000
"""


class Wiki(Host):
    """`with Wiki(root, log) as wiki:`. Apache does not run yet."""

    _apache = None
    _widths = itertools.count(400)

    def prepare(self):
        super().prepare()
        for directory in ["cache", "cache-with-messages", "database", "log"]:
            (self.root / "srv" / directory).mkdir()
        shutil.copytree(SITE, self.root / "srv/site")
        settings, = RECOMMENDED.findall(DOCUMENT.read_text(encoding="utf-8"))
        self.write("/srv/site/Recommended.php", f"<?php\n{settings}")
        self.configure()
        self.run(INSTALL)
        settings = "/etc/mediawiki/LocalSettings.php"
        self.write(settings, self.read(settings) + "\nrequire '/srv/site/Settings.php';\n")
        self.run("cd /etc/apache2 && ln -sf ../conf-available/mediawiki.conf conf-enabled/ && rm -f mods-enabled/reqtimeout.*"
                 " && chown -R www-data: /srv")
        self.run(f"echo '<burn/>' | {SCRIPT} edit Dear")
        self.run("mkdir /srv/upload && cd /srv/upload && convert -size 1600x1200 plasma:seagreen-sienna Big.png"
                 f" && {SCRIPT} importImages /srv/upload")
        self.run("touch /srv/renders /srv/thumbnails && chown -R www-data: /srv /var/lib/mediawiki/images")

    def version(self, package):
        """The version of a Debian package, without what Debian adds."""
        return re.sub(r"^\d+:|[+-].*", "", self.run(f"dpkg-query -f '${{Version}}' -W {package}"))

    def configure(self, pools=None, servers=(), burn_s=1.0, messages=False, connect=None, log_level="debug",
                  failure_epoch=None, recommended=False):
        """What `Settings.php` reads for each request. `connect` are settings of connecting
        to a server. If `recommended`, docs/guide/mediawiki.md sets the rest. After a change of
        `failure_epoch` no thumbnail is refused for earlier failures; without it, none ever
        is."""
        connect = {"timeout": PATIENCE_S} if connect is None else connect
        settings = {"pools": pools or {}, "client": {"servers": list(servers), **connect}, "burnSeconds": burn_s,
                    "messages": messages, "logLevel": log_level, "failureEpoch": failure_epoch,
                    "recommended": recommended}
        self.write("/srv/round.json", json.dumps(settings))

    def serve(self, processes):
        """Starts Apache with that many processes and empty caches."""
        self.halt()
        self.write("/etc/apache2/conf-enabled/processes.conf", APACHE.format(processes=processes))
        self._apache = self.start(["/bin/sh", "-c", ". /etc/apache2/envvars && mkdir -p $APACHE_RUN_DIR && exec apache2 -DFOREGROUND"])
        eventually("Apache serves", lambda: self.listens(ADDRESS, PORT))

    def halt(self):
        """Stops Apache: by force if it doesn't end, so that the next round has a new one."""
        if not self._apache:
            return
        self.run("pkill -TERM -o -x apache2", check=False)
        try:
            self._apache.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.run("pkill -KILL -x apache2", check=False)
            self._apache.wait(PATIENCE_S)
        finally:
            self._apache = None
        self.run("rm -f /run/apache2/apache2.pid")

    # --- the page and its renders

    def get(self, path):
        with Crowd(self, path, 1) as crowd:
            pass
        return crowd.readers[0]

    def renders(self, what="began"):
        """The renders that began (or `ended`) so far: the process id of each, in order."""
        lines = [line.split() for line in self.read("/srv/renders").splitlines()]
        return [int(line[2]) for line in lines if line[0] == what]

    def renders_of_readers(self, what, before):
        """The time of each render that began (or `ended`) after that many had, by the number
        that the reader has in its request, `&reader=7`."""
        lines = [line.split() for line in self.read("/srv/renders").splitlines()]
        return {int(line[4]): float(line[3]) for line in lines if line[0] == what and int(line[1]) > before}

    def thumbnails(self):
        """How many thumbnails were made so far."""
        return len(self.read("/srv/thumbnails").splitlines())

    def new_thumbnail(self):
        """Where to get a thumbnail that nobody has made yet."""
        return f"/mediawiki/thumb.php?f=Big.png&w={self.new_width()}"

    def new_width(self):
        """The width of a thumbnail that nobody has made yet."""
        return next(self._widths)

    @contextlib.contextmanager
    def held(self):
        """Inside the block, a render of a page does not end, and that of a thumbnail does
        not begin, so the round does everything there during a render."""
        self.write("/srv/hold", "")
        try:
            yield
        finally:
            (self.root / "srv/hold").unlink(missing_ok=True)

    def end_renders_until(self, number):
        """Inside `held`: lets those renders end that began until this one, counted from 1."""
        self.write("/srv/hold", str(number))

    def expire(self):
        """Makes every copy of the page old, as an edit of a template does. MediaWiki
        compares times in whole seconds, so this takes a second before and one after."""
        next_second()
        answer = self.request("POST", "/mediawiki/api.php", "action=purge&titles=Dear&format=json")
        expect(b'"purged":""' in answer, f"the page was not purged: {answer[:300]}")
        next_second()

    def request(self, method, path, form):
        """One request, by itself; returns the body of the answer."""
        connection = http.client.HTTPConnection(ADDRESS, PORT)
        connection.sock, = self.sockets(ADDRESS, PORT)
        connection.request(method, path, form, {"Content-Type": "application/x-www-form-urlencoded"})
        return connection.getresponse().read()


def next_second():
    now = int(time.time())
    eventually("the next second", lambda: int(time.time()) > now)
