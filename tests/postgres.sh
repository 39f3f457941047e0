#!/bin/sh
# A PostgreSQL for tests: in a directory of its own, on a socket alone or on a port, for as long as standard input stays open.
#
#     sh tests/postgres.sh BIN DIRECTORY [PORT [SETTING=VALUE…]]
#
# BIN has `initdb` and `postgres`. DIRECTORY, from the top, is made, and is gone at the end; the files of the directory that FILES names, if there is such a
# variable, are put there first, for the database alone. Prints `ready` once it answers; a line `restart` on standard
# input stops it at once (as a crash would) and starts it again, `stop` and `start` do one of both, `freeze` and `thaw` let it stand still with all its
# connections and go on; each is answered with `done`. As root it runs as the user `postgres`: the database refuses to be root.
set -eu
bin=$1 home=$2 port=${3:-5432}
[ $# -lt 3 ] && shift 2 || shift 3
mkdir -p "$home"
cd /
[ -z "${FILES:-}" ] || { cp "$FILES"/* "$home" && chmod 600 "$home"/*; }
as=
if [ "$(id -u)" = 0 ]; then
    chown -R postgres "$home"
    chmod 755 "$home"
    as='setpriv --reuid=postgres --regid=postgres --init-groups --'
fi
settings=
for setting in "$@"; do settings="$settings -c $setting"; done
begin() {
    # shellcheck disable=SC2086
    $as "$bin/pg_ctl" -D "$home/data" -s -w -t 60 -l "$home/log" start \
        -o "-k '$home' -p $port -c listen_addresses=127.0.0.1 -c max_connections=200$settings" >/dev/null </dev/null
}
# Its first process makes all others, and none while it stands still.
send() {
    first=$(head -n 1 "$home/data/postmaster.pid") && kill "-$1" "$first" && pkill "-$1" -P "$first" || true
}
# shellcheck disable=SC2086
end() { $as "$bin/pg_ctl" -D "$home/data" -s -w -m immediate stop >/dev/null 2>&1 </dev/null || true; }
trap 'send CONT 2>/dev/null; end; rm -rf "$home"' EXIT
trap 'exit 1' INT TERM HUP
# shellcheck disable=SC2086
$as "$bin/initdb" -D "$home/data" -U simse -A trust -N --locale=C -E UTF8 >/dev/null
begin
echo ready
while read -r word; do
    case $word in
    restart) end && begin ;;
    stop) end ;;
    start) begin ;;
    freeze) send STOP ;;
    thaw) send CONT ;;
    esac
    echo "done"
done
