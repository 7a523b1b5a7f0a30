// SPDX-License-Identifier: Apache-2.0

package api

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// vendored are the files of uPlot 1.6.32 from https://registry.npmjs.org/uplot/-/uplot-1.6.32.tgz (SHA-256 of that archive:
// 4b8a8191e425658e3ea8c8c1314b0fc679c861ee3a1af2b20c7b16ba50b5133d), each with its own SHA-256.
var vendored = []struct{ file, from, hash string }{
	{"uplot.min.js", "dist/uPlot.iife.min.js", "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f"},
	{"uplot.min.css", "dist/uPlot.min.css", "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04"},
}

// TestVendored compares the third-party files with the published ones, and checks that their licence is there.
func TestVendored(t *testing.T) {
	t.Parallel()
	for _, v := range vendored {
		if got := fmt.Sprintf("%x", sha256.Sum256(Files()["/page/"+v.file].Text)); got != v.hash {
			t.Errorf("%s is not %s of uPlot 1.6.32: SHA-256 %s", v.file, v.from, got)
		}
	}
	if _, err := os.Stat(filepath.Join("..", "..", "..", "LICENSES", "MIT-uPlot.txt")); err != nil {
		t.Error(err)
	}
}

// TestSelfContained searches our own files for constructs that the Content-Security-Policy forbids: external addresses, inline handlers and scripts,
// and text that becomes HTML. Chromium refuses these constructs; other browsers may accept them.
func TestSelfContained(t *testing.T) {
	t.Parallel()
	bad := regexp.MustCompile(`(?i)https?://|\son[a-z]+=|style="|<script>|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function`)
	for path, f := range Files() {
		if f.Type == "" {
			t.Errorf("%s has no type", path)
		}
		if strings.HasPrefix(path, "/page/uplot") {
			continue
		}
		text := strings.ReplaceAll(string(f.Text), "http://www.w3.org/2000/svg", "") // the name of an XML namespace, not an address to load from
		if found := bad.FindString(text); found != "" {
			t.Errorf("%s has %q", path, found)
		}
	}
}
