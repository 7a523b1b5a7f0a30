// Package release tests releases: it makes one with keys of its own, makes it again elsewhere, and has Debian hosts install from its
// apt repository. What a release is made of is not here: scripts/release, scripts/repository and packaging/tools/release. It takes some
// minutes, and is the gate before a release, so its files are tagged release, and make test-release runs it.
package release
