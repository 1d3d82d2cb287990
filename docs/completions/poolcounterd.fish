complete -c poolcounterd -s l -l listen -d 'Address to listen on: a literal IPv4 or IPv6 address, or several with commas. `::` serves IPv4 too. Given more than once, the last one counts. [default: 127.0.0.1 and, where there is one, ::1]' -r
complete -c poolcounterd -s p -l port -d 'TCP port; 0 takes a free one and logs which' -r
complete -c poolcounterd -l backlog -d 'Connections that the kernel keeps for us until we accept them; it takes no more than net.core.somaxconn' -r
complete -c poolcounterd -l max-connections -d 'Connections served at a time; one more is closed at once. [default: as many as there are descriptors]' -r
complete -c poolcounterd -l check -d 'Ask the daemon at this address for its uptime instead of serving; exit with 0 if it answers, 1 if not. [default address: localhost and --port]' -r
complete -c poolcounterd -s h -l help -d 'Print help'
complete -c poolcounterd -s V -l version -d 'Print version'
