// SPDX-License-Identifier: Apache-2.0

// Package release tests releases. It makes a release with test keys, builds the release again elsewhere, and installs from its apt repository on Debian
// hosts. The programs under test are scripts/release, scripts/repository and packaging/tools/release. The test takes some minutes and is only needed
// before a release, so its files have the build tag release, and make test-release runs it.
package release
