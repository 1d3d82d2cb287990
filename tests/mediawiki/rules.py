"""A flood of the API occupies every process of the web server, until an operator limits it
by one rule.
"""

import contextlib
import re

from crowd import Crowd
from daemons import POOLCOUNTER, Daemon
from roots import eventually, expect

PROCESSES = 40
FLOOD = 60
READERS = 20
CONTROL = "/srv/control.sock"
# Work that only the API asks for, one lock for each user or address; far too many may wait.
POOL = {"class": "PoolCounter_Client", "timeout": 60, "workers": 1, "maxqueue": 1000}
API = "/mediawiki/api.php?action=parse&format=json&contentmodel=wikitext&text=%3Cburn/%3E"
ARTICLE = "/mediawiki/index.php?title=Main_Page"
# The client's address is the last part of the key.
RULE = "poolcounter rule set flood --for 30m '*:ApiParse:*' maxqueue=4"


def flood_of_the_api(wiki):
    """While 60 requests of one client ask the API to parse, 20 readers want an article."""
    with Daemon(wiki, "ours", ["--control", CONTROL]) as daemon:
        wiki.configure({"ApiParser": POOL}, [daemon.address], 0.0)
        wiki.serve(PROCESSES)
        expect(wiki.get(ARTICLE).status == 200, "the wiki does not work")
        with contextlib.ExitStack() as crowds:
            with wiki.held():
                flood = crowds.enter_context(Crowd(wiki, API, FLOOD))
                eventually("every process is occupied",
                           lambda: daemon.counters()["waiting_workers"] == PROCESSES - 1)
                readers = crowds.enter_context(Crowd(wiki, ARTICLE, READERS))
                expect(not readers.wait(2) and not readers.answered(), "articles are served without a rule")
        before = f"without a rule {PROCESSES} processes parse or wait, 0 of {READERS} readers are answered"
        eventually("all locks are given back", lambda: not daemon.counters()["hashtable_entries"])
        wiki.run(f"/srv/bin/{RULE} --control-socket {CONTROL}")
        with contextlib.ExitStack() as crowds:
            with wiki.held():
                flood = crowds.enter_context(Crowd(wiki, API, FLOOD))
                eventually("the others are refused", lambda: flood.answered() == FLOOD - 4)
                readers = crowds.enter_context(Crowd(wiki, ARTICLE, READERS))
                expect(readers.wait(60), "articles are not served")
                expect({reader.status for reader in readers.readers} == {200}, "articles fail")
                refused = [reader for reader in flood.readers if reader.seconds is not None]
        codes = {re.sub(rb'.*"code":"([^"]*)".*', rb"\1", reader.body) for reader in refused}
        expect(codes == {b"concurrency-limit"}, f"the API answers {codes}")
        listed = wiki.run(f"{POOLCOUNTER} rules --control-socket {CONTROL}")
        return (f": {before};\n         with `{RULE}` {FLOOD - 4} of {FLOOD} requests are refused, the slowest of"
                f" {READERS} readers is answered after {readers.slowest():.2f} s\n{listed}")


FACTS = [flood_of_the_api]
