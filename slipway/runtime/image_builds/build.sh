#!/bin/sh
# Builds an image with a BuildKit that lives as long as this script, and pushes it: `build.sh WORK [buildctl option]…`.
# WORK is what slipway.runtime.image_builds.prepare has laid out. The image's digest is the last line, and the pod's message.
# Written for BusyBox, which is all that BuildKit's image has.
set -eu
work=$1
shift
: "${MESSAGE:=/dev/termination-log}"
tell() { printf '%s' "$1" >"$MESSAGE" 2>/dev/null || true; }
if [ -s "$work/pushed" ]; then
    digest=$(cat "$work/pushed")
    echo "nothing is built: the image of this context is there already"
else
    # Where the credential helper is.
    export DOCKER_CONFIG="$work/docker" PATH="$PATH:$work/docker"
    buildctl-daemonless.sh build --progress plain --frontend dockerfile.v0 \
        --local "context=$work/context" --local "dockerfile=$work/context" \
        --metadata-file "$work/metadata.json" "$@" || {
        # A registry takes no second image under a tag that may not move, such as one of a build at the same time.
        echo "no image was tagged; where another build has pushed this one meanwhile, the next 'pulumi up' finds it" >&2
        exit 1
    }
    digest=$(sed -n 's/.*"containerimage.digest": *"\(sha256:[0-9a-f]*\)".*/\1/p' "$work/metadata.json" | head -n 1)
    [ -n "$digest" ] || { echo "BuildKit names no digest of the image" >&2; exit 1; }
fi
tell "$digest"
echo "$digest"
