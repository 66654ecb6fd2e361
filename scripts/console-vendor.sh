#!/bin/sh
# Fetches the libraries of the console from the npm registry into server/console/ui/vendor, and checks them.
# A browser resolves no package names without an import map, which the console's Content-Security-Policy does not
# allow, so the import of preact becomes a path. References to source maps are removed, since the maps are not there.
# To change a version, edit it here, run the script and replace the checksums by those that it prints.
set -eu

PREACT=10.29.8
HTM=3.1.1

root=$(cd "$(dirname "$0")/.." && pwd)
vendor=$root/server/console/ui/vendor
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# fetch PACKAGE VERSION unpacks a package into $work/PACKAGE. npm checks the registry's checksum of the archive.
fetch() {
	(cd "$work" && npm pack --silent "$1@$2" > /dev/null)
	mkdir "$work/$1"
	tar -xzf "$work/$1-$2.tgz" -C "$work/$1" --strip-components 1
}

# module FILE NAME copies a module.
module() {
	sed -e 's/from"preact"/from".\/preact.js"/g' -e '/^\/\/# sourceMappingURL=/d' "$work/$1" > "$vendor/$2"
}

fetch preact "$PREACT"
fetch htm "$HTM"
mkdir -p "$vendor"
module preact/dist/preact.module.js preact.js
module preact/hooks/dist/hooks.module.js hooks.js
module htm/dist/htm.module.js htm.js
cp "$work/preact/LICENSE" "$vendor/preact.LICENSE.txt"
cp "$work/htm/LICENSE" "$vendor/htm.LICENSE.txt"
cat > "$vendor/VERSIONS.txt" <<END
preact $PREACT (MIT): preact.js, hooks.js
htm $HTM (Apache-2.0): htm.js
Fetched from the npm registry by scripts/console-vendor.sh.
END

cd "$vendor"
sha256sum -- *
sha256sum --check --quiet --strict <<'END'
0962a79aaba5092fe2a2f5ee702178ede4bbf58c12faee0f2ff8a63869fc11b2  VERSIONS.txt
3b5febe57b6eebec5285fc25b33c9019e53e31641df0fad7d8f9e64ca8661592  hooks.js
740725f7252e750af735d0028cc534970772f513331e9f68150fede8fb3ce00f  htm.LICENSE.txt
ab33dd3f38059b9be4d5f5350128eefb2356639c4e0bbe9d9e8b3ba75847e9e4  htm.js
1fe6958409c8c257a70c587a18b6f7f412b179b456630790d30b2ec9a8e4b7d4  preact.LICENSE.txt
25a5df7e9f628a587743c4641a368737a3b218f28ef738ba0376a2d5bdfc948c  preact.js
END
