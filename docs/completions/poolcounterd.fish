complete -c poolcounterd -s l -l listen -d 'Listen on this literal IPv4 or IPv6 address, or on several, separated by commas. `::` serves IPv4 too. The last -l counts. [default: 127.0.0.1 and, if the machine has it, ::1]' -r
complete -c poolcounterd -s p -l port -d 'TCP port; 0 takes a free port and logs it' -r
complete -c poolcounterd -l backlog -d 'Connections that the kernel queues until the daemon accepts them; at most net.core.somaxconn' -r
complete -c poolcounterd -l allow -d 'Serve only these addresses, such as 10.0.0.0/8 or 2001:db8::/32, and close other connections. May be given several times. [default: serve all]' -r
complete -c poolcounterd -l max-connections -d 'Serve at most this many connections at a time, and close further ones at once. [default: as many as there are descriptors]' -r
complete -c poolcounterd -l max-connections-per-ip -d 'Serve at most this many connections from one address at a time, and close further ones at once. [default: no limit]' -r
complete -c poolcounterd -l rules -d 'Limit groups of keys by the rules in this file. A hot restart reads it again. [default: no rules]' -r -F
complete -c poolcounterd -l max-hold -d 'Close the connection of a client that has held a lock for this long. `*` in the pattern matches anything, \\xNN a byte. May be given several times; the first pattern that matches a key counts. [default: no limit]' -r
complete -c poolcounterd -l keepalive -d 'Probe the host of a client that is silent; if it does not respond, free its locks after 1.5 times this time. 0 turns this off' -r
complete -c poolcounterd -l http -d 'Also serve HTTP at this address, for monitoring and browsers, read-only. May be given several times. [default: none]' -r
complete -c poolcounterd -l http-allow -d 'Serve HTTP only to these addresses. May be given several times. [default: those of --allow]' -r
complete -c poolcounterd -l http-keys -d 'List this many of the most requested keys in /metrics, and as many of those that take most time; at most 100' -r
complete -c poolcounterd -l slow -d 'Remember and log holds and waits that take longer, such as 5 or 250ms. [default: none]' -r
complete -c poolcounterd -l control -d 'Also take orders from operators on a Unix socket at this path; HELP lists them. "none" is no socket. [default: none]' -r -F
complete -c poolcounterd -l control-group -d 'Group whose members may also use the control socket. [default: none]' -r
complete -c poolcounterd -l log -d 'What to log: error, warn, info, debug, trace or off. [default: RUST_LOG, else info]' -r
complete -c poolcounterd -l check -d 'Ask the daemon at this address, or on the Unix socket at this path, for its uptime; exit with 0 if it answers, 1 if not. [default address: localhost and --port]' -r
complete -c poolcounterd -l check-rules -d 'Check this file of rules, and print what applies to each of the keys that follow it; exit with 1 if the file is invalid' -r
complete -c poolcounterd -l private -d 'Hide keys and addresses of clients on the port and over HTTP; the control socket and the log show them'
complete -c poolcounterd -l check-options -d 'Judge the other options, and the file of rules that they name, as a start does; exit with 1 if they are refused. Nothing is opened'
complete -c poolcounterd -l reload -d 'Order the running daemon to make a hot restart, over its control socket, and wait until it is done. The other options replace the daemon\'s; without any it keeps its own. Exit with 1 if the restart is refused'
complete -c poolcounterd -s h -l help -d 'Print this help'
complete -c poolcounterd -s V -l version -d 'Print the version'
