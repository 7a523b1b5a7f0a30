// Package fuzz tests how fuzz targets are listed and run: scripts/fuzz and packaging/oss-fuzz. The targets themselves are beside the code
// that they are about.
package fuzz
