// SPDX-License-Identifier: Apache-2.0

// Package fuzz tests the programs that list and run fuzz targets: scripts/fuzz and packaging/oss-fuzz. The fuzz targets themselves are in the
// packages that they test.
package fuzz
