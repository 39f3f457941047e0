# Ends what its owner kept running, should that be killed. See keeper.rs.
trap '' INT TERM HUP PIPE
kept=
while read -r what mark leader; do
    if [ "$what" = + ]; then
        kept="$kept $mark:$leader"
        continue
    fi
    rest=
    for one in $kept; do
        [ "${one%%:*}" = "$mark" ] || rest="$rest $one"
    done
    kept=$rest
done
[ -n "$kept" ] || exit 0
# Every process that carries one of the marks, or is in the group of what was started.
signal_all() {
    found=
    for one in $kept; do
        kill "-$1" "-${one#*:}" 2>/dev/null && found=yes
        for place in $(grep -l "SIMSE_PROCESS=${one%%:*}" /proc/[0-9]*/environ 2>/dev/null); do
            id=${place#/proc/}
            kill "-$1" "${id%/environ}" 2>/dev/null && found=yes
        done
    done
    [ -n "$found" ]
}
# They have seen the end of their input, and have a moment to end by themselves.
signal_all TERM || exit 0
sleep 1
for round in 1 2 3 4 5; do
    signal_all KILL || exit 0
done
