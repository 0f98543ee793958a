#!/usr/bin/env bash
# Measures a change as another user, and judges the files of its runs as this one.
#
#   check-as.sh USER BASE [FILE ...]
#
# Run it as root in a clone of the change. USER owns nothing that matters, and can run flamegate. FILEs
# are those that the engine needs and that git does not track, such as a model, by their path in here.
set -euo pipefail
user=$1
base=$(git rev-parse --verify "$2^{commit}")
head=$(git rev-parse HEAD)
shift 2

place=$(mktemp -d) # the other user's
runs=$(mktemp -d)  # this user's: nobody else can write there
end_processes() { pkill -KILL -u "$user" || true; }
trap 'end_processes; rm -rf "$place" "$runs"' EXIT

# A clone has neither credentials of the original's configuration nor hard links to its files.
git clone -q --no-hardlinks . "$place/tree"
git -C "$place/tree" fetch -q "$PWD" "$base"
git -C "$place/tree" checkout -q --detach "$head"
[ $# = 0 ] || cp -a --parents "$@" "$place/tree"
chown -R "$user:" "$place"

# Its answer counts for nothing: the change's code could have written it.
(
    cd "$place/tree"
    setpriv --reuid="$user" --regid="$(id -g "$user")" --init-groups --no-new-privs \
        env -i PATH="$PATH" HOME="$place" LANG=C.UTF-8 CI=true \
        flamegate check --base "$base" </dev/null
) || true

# From here on none of that user's processes can change a file that is judged.
end_processes
cp -rP "$place/tree/.flamegate/latest/." "$runs" || true
flamegate check --base "$base" --head "$head" --receipts "$runs" --max-age 1h
