complete -c poolcounterd -s l -l listen -d 'Address to listen on: a literal IPv4 or IPv6 address, or several with commas. `::` serves IPv4 too. Given more than once, the last one counts. [default: 127.0.0.1 and, where there is one, ::1]' -r
complete -c poolcounterd -s p -l port -d 'TCP port; 0 takes a free one and logs which' -r
complete -c poolcounterd -l backlog -d 'Connections that the kernel keeps for us until we accept them; it takes no more than net.core.somaxconn' -r
complete -c poolcounterd -l listen-unix -d 'Serve a Unix socket at this path as well' -r
complete -c poolcounterd -l listen-unix-mode -d 'Mode of that socket\'s file, in octal: who may connect to it' -r
complete -c poolcounterd -l allow -d 'Close connections from other addresses than these, such as 10.0.0.0/8 or 2001:db8::/32. May be given several times. [default: all are served]' -r
complete -c poolcounterd -l max-connections-per-ip -d 'Connections served at a time from one address. [default: no limit]' -r
complete -c poolcounterd -l keepalive -d 'After how many seconds of silence a client\'s host is asked whether it is still there. One that is not has its locks freed within twice that time. 0 never asks' -r
complete -c poolcounterd -l max-hold -d 'Take a lock away from whoever holds it for longer. `*` in the pattern stands for anything. May be given several times; the first that matches a key counts. [default: no limit]' -r
complete -c poolcounterd -l max-connections -d 'Connections served at a time; one more is closed at once. [default: as many as there are descriptors]' -r
complete -c poolcounterd -l check -d 'Ask the daemon at this address for its uptime instead of serving; exit with 0 if it answers, 1 if not. [default address: localhost and --port]' -r
complete -c poolcounterd -l control -d 'Unix socket for operators (try HELP on it) and for --reload' -r
complete -c poolcounterd -l control-group -d 'Group whose members may use the control socket too' -r
complete -c poolcounterd -l log -d 'What to log, as in RUST_LOG, which it overrides: error, warn, info, debug' -r
complete -c poolcounterd -l reload -d 'Ask the running daemon for a hot restart, by --control\'s socket, and wait until it is done. Other options given with it become the daemon\'s new ones; without any it keeps its own. Exit with 1 if it was refused'
complete -c poolcounterd -l read-snapshot -d 'What a new binary is asked before a hot restart (docs/restart.md)'
complete -c poolcounterd -s h -l help -d 'Print help'
complete -c poolcounterd -s V -l version -d 'Print version'
