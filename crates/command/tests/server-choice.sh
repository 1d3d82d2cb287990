#!/bin/bash
# Writes server-choice.txt: for each key the servers in the order in which clients try
# them, ascending md5(name . key), computed by md5sum and sort.
set -eu
export LC_ALL=C
cd "$(dirname "$0")"
servers=(10.1.2.3 10.1.2.4 10.1.2.5:7532 wiki1.example '[2001:db8::1]:7531')
keys=(k article:1 'enwiki:pcache:idhash:2-0!canonical:revid:7' 'a key with spaces' ArticleView:17
    Ünïcödé nightly-report x:0 x:1 x:2 x:3 x:4)
{
    echo '# Written by server-choice.sh. A key, then the servers in their order; tabs between.'
    for key in "${keys[@]}"; do
        printf %s "$key"
        for server in "${servers[@]}"; do
            printf '%s %s\n' "$(printf %s "$server$key" | md5sum | cut -d' ' -f1)" "$server"
        done | sort | while read -r _ server; do printf '\t%s' "$server"; done
        echo
    done
} > server-choice.txt
