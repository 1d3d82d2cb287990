# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_poolcounter_global_optspecs
    string join \n s/server= h/help V/version
end

function __fish_poolcounter_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_poolcounter_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_poolcounter_using_subcommand
    set -l cmd (__fish_poolcounter_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c poolcounter -n "__fish_poolcounter_needs_command" -s s -l server -d 'A server: host, host:port or [v6]:port. Separate several by spaces or commas, or repeat the option. [default: see below]' -r -f -a "(__fish_print_hostnames)"
complete -c poolcounter -n "__fish_poolcounter_needs_command" -s h -l help -d 'Print help'
complete -c poolcounter -n "__fish_poolcounter_needs_command" -s V -l version -d 'Print the version'
complete -c poolcounter -n "__fish_poolcounter_needs_command" -f -a "run" -d 'Run a command while holding a lock'
complete -c poolcounter -n "__fish_poolcounter_needs_command" -f -a "stats" -d 'Print the statistics of the servers'
complete -c poolcounter -n "__fish_poolcounter_needs_command" -f -a "keys" -d 'List the keys that exist now, those with the most waiters first, then those that are held for longest'
complete -c poolcounter -n "__fish_poolcounter_needs_command" -f -a "key" -d 'Show the holders and waiters of a key'
complete -c poolcounter -n "__fish_poolcounter_needs_command" -f -a "which" -d 'Print the servers of a key, in the order in which clients try them'
complete -c poolcounter -n "__fish_poolcounter_needs_command" -f -a "clients" -d 'List the addresses of clients, those with the most connections first'
complete -c poolcounter -n "__fish_poolcounter_needs_command" -f -a "slow" -d 'List the last holds and waits that took long (the daemon\'s --slow)'
complete -c poolcounter -n "__fish_poolcounter_needs_command" -f -a "top" -d 'Watch servers as htop does: hot keys, queues, oldest holders, clients, rates'
complete -c poolcounter -n "__fish_poolcounter_needs_command" -f -a "check" -d 'Check the servers, as a plugin of Nagios and Icinga'
complete -c poolcounter -n "__fish_poolcounter_needs_command" -f -a "drain" -d 'Order the daemon of this host to drain: no new clients, exit when the last one has left'
complete -c poolcounter -n "__fish_poolcounter_needs_command" -f -a "undrain" -d 'Order the daemon of this host to take new clients again'
complete -c poolcounter -n "__fish_poolcounter_needs_command" -f -a "free" -d 'Close the connections that hold a key, one connection, or all from an address'
complete -c poolcounter -n "__fish_poolcounter_needs_command" -f -a "rules" -d 'List the rules of the daemon of this host, and what they do'
complete -c poolcounter -n "__fish_poolcounter_needs_command" -f -a "rule" -d 'Change the rules of the daemon of this host while it runs'
complete -c poolcounter -n "__fish_poolcounter_needs_command" -f -a "control" -d 'Send any order to the control socket; HELP lists them'
complete -c poolcounter -n "__fish_poolcounter_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand run" -s n -l workers -d 'How many clients may hold the key at once' -r
complete -c poolcounter -n "__fish_poolcounter_using_subcommand run" -s q -l queue -d 'How many clients may hold the key or wait for it, including this one. [default: any number]' -r
complete -c poolcounter -n "__fish_poolcounter_using_subcommand run" -s t -l timeout -d 'How long to wait for the lock, rounded up to whole seconds; 0 means no wait. [default: for ever]' -r
complete -c poolcounter -n "__fish_poolcounter_using_subcommand run" -s E -l conflict-exit-code -d 'Exit status when the lock is not given, because the time is over or the queue is full' -r
complete -c poolcounter -n "__fish_poolcounter_using_subcommand run" -l no-server -d 'What to do when no server that may be asked answers' -r -f -a "run\t'Run the command without a lock'
fail\t'Don\'t run it'"
complete -c poolcounter -n "__fish_poolcounter_using_subcommand run" -l connect-timeout -d 'How long a server may accept no connection, or be away during the wait, before it counts as down. With --timeout at most what is left of that, but at least 2. [default: 30]' -r
complete -c poolcounter -n "__fish_poolcounter_using_subcommand run" -l on-lost -d 'What to do when the connection, and with it the lock, is lost while the command runs' -r -f -a "warn\t'Print a warning; the command continues'
kill\t'Stop the command and all that it has started: SIGTERM, then SIGKILL'"
complete -c poolcounter -n "__fish_poolcounter_using_subcommand run" -s k -l kill-after -d 'With --on-lost kill: the time between SIGTERM and SIGKILL. A process that ignores SIGTERM runs that long while the lock is free. [default: 10]' -r
complete -c poolcounter -n "__fish_poolcounter_using_subcommand run" -s s -l server -d 'A server: host, host:port or [v6]:port. Separate several by spaces or commas, or repeat the option. [default: see below]' -r -f -a "(__fish_print_hostnames)"
complete -c poolcounter -n "__fish_poolcounter_using_subcommand run" -l any -d 'Another holder\'s finished work will do: if a holder releases the lock during the wait, exit with 0 and do not run the command'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand run" -l fallback -d 'When the key\'s own server is down, ask the next one of the list, as MediaWiki does: the command may then run while another client has the lock'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand run" -s v -l verbose -d 'Print who holds the lock during the wait, as on a terminal after a second, and each wait whose connection was lost'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand run" -l quiet -d 'Print no line if the lock is not given, because the time is over or the queue is full'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand run" -s h -l help -d 'Print help'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand stats" -s s -l server -d 'A server: host, host:port or [v6]:port. Separate several by spaces or commas, or repeat the option. [default: see below]' -r -f -a "(__fish_print_hostnames)"
complete -c poolcounter -n "__fish_poolcounter_using_subcommand stats" -l json -d 'Print an object of JSON for each server'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand stats" -s h -l help -d 'Print help'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand keys" -s s -l server -d 'A server: host, host:port or [v6]:port. Separate several by spaces or commas, or repeat the option. [default: see below]' -r -f -a "(__fish_print_hostnames)"
complete -c poolcounter -n "__fish_poolcounter_using_subcommand keys" -l json -d 'Print an object of JSON for each server'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand keys" -s h -l help -d 'Print help'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand key" -s s -l server -d 'A server: host, host:port or [v6]:port. Separate several by spaces or commas, or repeat the option. [default: see below]' -r -f -a "(__fish_print_hostnames)"
complete -c poolcounter -n "__fish_poolcounter_using_subcommand key" -l json -d 'Print an object of JSON for each server'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand key" -s h -l help -d 'Print help'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand which" -l hash-slots -d 'The key is POOL:KEY, and its lock is one of N slots, as MediaWiki\'s `slots`' -r
complete -c poolcounter -n "__fish_poolcounter_using_subcommand which" -s s -l server -d 'A server: host, host:port or [v6]:port. Separate several by spaces or commas, or repeat the option. [default: see below]' -r -f -a "(__fish_print_hostnames)"
complete -c poolcounter -n "__fish_poolcounter_using_subcommand which" -s h -l help -d 'Print help'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand clients" -s s -l server -d 'A server: host, host:port or [v6]:port. Separate several by spaces or commas, or repeat the option. [default: see below]' -r -f -a "(__fish_print_hostnames)"
complete -c poolcounter -n "__fish_poolcounter_using_subcommand clients" -l json -d 'Print an object of JSON for each server'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand clients" -s h -l help -d 'Print help'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand slow" -s s -l server -d 'A server: host, host:port or [v6]:port. Separate several by spaces or commas, or repeat the option. [default: see below]' -r -f -a "(__fish_print_hostnames)"
complete -c poolcounter -n "__fish_poolcounter_using_subcommand slow" -l json -d 'Print an object of JSON for each server'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand slow" -s h -l help -d 'Print help'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand top" -l interval -d 'The time between two queries of a server, such as 1, 0.5 or 1m' -r
complete -c poolcounter -n "__fish_poolcounter_using_subcommand top" -s s -l server -d 'A server: host, host:port or [v6]:port. Separate several by spaces or commas, or repeat the option. [default: see below]' -r -f -a "(__fish_print_hostnames)"
complete -c poolcounter -n "__fish_poolcounter_using_subcommand top" -s h -l help -d 'Print help'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand check" -l waiting -d 'Thresholds for the number of clients that wait' -r
complete -c poolcounter -n "__fish_poolcounter_using_subcommand check" -l oldest-hold -d 'Thresholds for the seconds for which the oldest lock is held' -r
complete -c poolcounter -n "__fish_poolcounter_using_subcommand check" -l full-queues -d 'Thresholds for the number of QUEUE_FULL answers per second' -r
complete -c poolcounter -n "__fish_poolcounter_using_subcommand check" -l for -d 'How long to count the answers of --full-queues' -r
complete -c poolcounter -n "__fish_poolcounter_using_subcommand check" -s s -l server -d 'A server: host, host:port or [v6]:port. Separate several by spaces or commas, or repeat the option. [default: see below]' -r -f -a "(__fish_print_hostnames)"
complete -c poolcounter -n "__fish_poolcounter_using_subcommand check" -s h -l help -d 'Print help'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand drain" -l wait -d 'Wait until the daemon has exited, but no longer than TIME. [default: for ever]' -r
complete -c poolcounter -n "__fish_poolcounter_using_subcommand drain" -l control-socket -d 'The daemon\'s control socket' -r -F
complete -c poolcounter -n "__fish_poolcounter_using_subcommand drain" -l timeout -d 'How long to wait for the answer; the daemon may execute the order without one. [default: 10, or 60 for a hot restart]' -r
complete -c poolcounter -n "__fish_poolcounter_using_subcommand drain" -l json -d 'Print the answer as JSON'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand drain" -s h -l help -d 'Print help'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand undrain" -l control-socket -d 'The daemon\'s control socket' -r -F
complete -c poolcounter -n "__fish_poolcounter_using_subcommand undrain" -l timeout -d 'How long to wait for the answer; the daemon may execute the order without one. [default: 10, or 60 for a hot restart]' -r
complete -c poolcounter -n "__fish_poolcounter_using_subcommand undrain" -l json -d 'Print the answer as JSON'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand undrain" -s h -l help -d 'Print help'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand free" -l key -d 'Those that hold this key. Bytes can be written as \\xNN, as lists show them' -r
complete -c poolcounter -n "__fish_poolcounter_using_subcommand free" -l client -d 'The one that lists show as #NUMBER' -r
complete -c poolcounter -n "__fish_poolcounter_using_subcommand free" -l host -d 'All from this address' -r
complete -c poolcounter -n "__fish_poolcounter_using_subcommand free" -l max -d 'Close this many connections at most; if more match, close none' -r
complete -c poolcounter -n "__fish_poolcounter_using_subcommand free" -l control-socket -d 'The daemon\'s control socket' -r -F
complete -c poolcounter -n "__fish_poolcounter_using_subcommand free" -l timeout -d 'How long to wait for the answer; the daemon may execute the order without one. [default: 10, or 60 for a hot restart]' -r
complete -c poolcounter -n "__fish_poolcounter_using_subcommand free" -l dry-run -d 'Show which locks would be freed, and close nothing'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand free" -l json -d 'Print the answer as JSON'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand free" -s h -l help -d 'Print help'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand rules" -l control-socket -d 'The daemon\'s control socket' -r -F
complete -c poolcounter -n "__fish_poolcounter_using_subcommand rules" -l timeout -d 'How long to wait for the answer; the daemon may execute the order without one. [default: 10, or 60 for a hot restart]' -r
complete -c poolcounter -n "__fish_poolcounter_using_subcommand rules" -l json -d 'Print the answer as JSON'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand rules" -s h -l help -d 'Print help'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand rule; and not __fish_seen_subcommand_from set off reset help" -l control-socket -d 'The daemon\'s control socket' -r -F
complete -c poolcounter -n "__fish_poolcounter_using_subcommand rule; and not __fish_seen_subcommand_from set off reset help" -l timeout -d 'How long to wait for the answer; the daemon may execute the order without one. [default: 10, or 60 for a hot restart]' -r
complete -c poolcounter -n "__fish_poolcounter_using_subcommand rule; and not __fish_seen_subcommand_from set off reset help" -l json -d 'Print the answer as JSON'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand rule; and not __fish_seen_subcommand_from set off reset help" -s h -l help -d 'Print help'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand rule; and not __fish_seen_subcommand_from set off reset help" -f -a "set" -d 'Replace the rule of this name, or put it in front of all others'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand rule; and not __fish_seen_subcommand_from set off reset help" -f -a "off" -d 'Disable the rule of this name, also if it is in the file'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand rule; and not __fish_seen_subcommand_from set off reset help" -f -a "reset" -d 'End the order about this rule that applies: what it replaced returns'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand rule; and not __fish_seen_subcommand_from set off reset help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand rule; and __fish_seen_subcommand_from set" -l for -d 'How long the rule applies, such as 90, 30m or 1h30m; then what it replaced returns. [default: until another order]' -r
complete -c poolcounter -n "__fish_poolcounter_using_subcommand rule; and __fish_seen_subcommand_from set" -l control-socket -d 'The daemon\'s control socket' -r -F
complete -c poolcounter -n "__fish_poolcounter_using_subcommand rule; and __fish_seen_subcommand_from set" -l timeout -d 'How long to wait for the answer; the daemon may execute the order without one. [default: 10, or 60 for a hot restart]' -r
complete -c poolcounter -n "__fish_poolcounter_using_subcommand rule; and __fish_seen_subcommand_from set" -l json -d 'Print the answer as JSON'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand rule; and __fish_seen_subcommand_from set" -s h -l help -d 'Print help'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand rule; and __fish_seen_subcommand_from off" -l control-socket -d 'The daemon\'s control socket' -r -F
complete -c poolcounter -n "__fish_poolcounter_using_subcommand rule; and __fish_seen_subcommand_from off" -l timeout -d 'How long to wait for the answer; the daemon may execute the order without one. [default: 10, or 60 for a hot restart]' -r
complete -c poolcounter -n "__fish_poolcounter_using_subcommand rule; and __fish_seen_subcommand_from off" -l json -d 'Print the answer as JSON'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand rule; and __fish_seen_subcommand_from off" -s h -l help -d 'Print help'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand rule; and __fish_seen_subcommand_from reset" -l control-socket -d 'The daemon\'s control socket' -r -F
complete -c poolcounter -n "__fish_poolcounter_using_subcommand rule; and __fish_seen_subcommand_from reset" -l timeout -d 'How long to wait for the answer; the daemon may execute the order without one. [default: 10, or 60 for a hot restart]' -r
complete -c poolcounter -n "__fish_poolcounter_using_subcommand rule; and __fish_seen_subcommand_from reset" -l json -d 'Print the answer as JSON'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand rule; and __fish_seen_subcommand_from reset" -s h -l help -d 'Print help'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand rule; and __fish_seen_subcommand_from help" -f -a "set" -d 'Replace the rule of this name, or put it in front of all others'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand rule; and __fish_seen_subcommand_from help" -f -a "off" -d 'Disable the rule of this name, also if it is in the file'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand rule; and __fish_seen_subcommand_from help" -f -a "reset" -d 'End the order about this rule that applies: what it replaced returns'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand rule; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand control" -l control-socket -d 'The daemon\'s control socket' -r -F
complete -c poolcounter -n "__fish_poolcounter_using_subcommand control" -l timeout -d 'How long to wait for the answer; the daemon may execute the order without one. [default: 10, or 60 for a hot restart]' -r
complete -c poolcounter -n "__fish_poolcounter_using_subcommand control" -l json -d 'Print the answer as JSON'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand control" -s h -l help -d 'Print help'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand help; and not __fish_seen_subcommand_from run stats keys key which clients slow top check drain undrain free rules rule control help" -f -a "run" -d 'Run a command while holding a lock'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand help; and not __fish_seen_subcommand_from run stats keys key which clients slow top check drain undrain free rules rule control help" -f -a "stats" -d 'Print the statistics of the servers'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand help; and not __fish_seen_subcommand_from run stats keys key which clients slow top check drain undrain free rules rule control help" -f -a "keys" -d 'List the keys that exist now, those with the most waiters first, then those that are held for longest'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand help; and not __fish_seen_subcommand_from run stats keys key which clients slow top check drain undrain free rules rule control help" -f -a "key" -d 'Show the holders and waiters of a key'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand help; and not __fish_seen_subcommand_from run stats keys key which clients slow top check drain undrain free rules rule control help" -f -a "which" -d 'Print the servers of a key, in the order in which clients try them'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand help; and not __fish_seen_subcommand_from run stats keys key which clients slow top check drain undrain free rules rule control help" -f -a "clients" -d 'List the addresses of clients, those with the most connections first'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand help; and not __fish_seen_subcommand_from run stats keys key which clients slow top check drain undrain free rules rule control help" -f -a "slow" -d 'List the last holds and waits that took long (the daemon\'s --slow)'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand help; and not __fish_seen_subcommand_from run stats keys key which clients slow top check drain undrain free rules rule control help" -f -a "top" -d 'Watch servers as htop does: hot keys, queues, oldest holders, clients, rates'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand help; and not __fish_seen_subcommand_from run stats keys key which clients slow top check drain undrain free rules rule control help" -f -a "check" -d 'Check the servers, as a plugin of Nagios and Icinga'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand help; and not __fish_seen_subcommand_from run stats keys key which clients slow top check drain undrain free rules rule control help" -f -a "drain" -d 'Order the daemon of this host to drain: no new clients, exit when the last one has left'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand help; and not __fish_seen_subcommand_from run stats keys key which clients slow top check drain undrain free rules rule control help" -f -a "undrain" -d 'Order the daemon of this host to take new clients again'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand help; and not __fish_seen_subcommand_from run stats keys key which clients slow top check drain undrain free rules rule control help" -f -a "free" -d 'Close the connections that hold a key, one connection, or all from an address'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand help; and not __fish_seen_subcommand_from run stats keys key which clients slow top check drain undrain free rules rule control help" -f -a "rules" -d 'List the rules of the daemon of this host, and what they do'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand help; and not __fish_seen_subcommand_from run stats keys key which clients slow top check drain undrain free rules rule control help" -f -a "rule" -d 'Change the rules of the daemon of this host while it runs'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand help; and not __fish_seen_subcommand_from run stats keys key which clients slow top check drain undrain free rules rule control help" -f -a "control" -d 'Send any order to the control socket; HELP lists them'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand help; and not __fish_seen_subcommand_from run stats keys key which clients slow top check drain undrain free rules rule control help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand help; and __fish_seen_subcommand_from rule" -f -a "set" -d 'Replace the rule of this name, or put it in front of all others'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand help; and __fish_seen_subcommand_from rule" -f -a "off" -d 'Disable the rule of this name, also if it is in the file'
complete -c poolcounter -n "__fish_poolcounter_using_subcommand help; and __fish_seen_subcommand_from rule" -f -a "reset" -d 'End the order about this rule that applies: what it replaced returns'
