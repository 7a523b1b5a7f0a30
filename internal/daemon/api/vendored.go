// SPDX-License-Identifier: Apache-2.0

// This file embeds the static files of the live page, which the daemon's API serves at /. Files returns each static file with its path. The code of
// this file uses no network. The page sends requests only to the API that served the page.
//
// static/index.html is the page. main.js starts the page: it polls the API (ask.js) and passes the answers to sections.js and chart.js. sections.js
// writes them as text into tables (table.js). format.js formats numbers and times. The files are served unchanged, without a build step.
//
// uplot.min.js and uplot.min.css are from uPlot, a chart library (https://github.com/leeoniya/uPlot, LICENSES/MIT-uPlot.txt).
// TestVendored compares these two files with the hashes of the package in the npm registry.

package api

import (
	"crypto/sha256"
	"embed"
	"fmt"
	"io/fs"
	"path"
)

//go:embed static
var static embed.FS

// Security is the Content-Security-Policy of all files: scripts and styles from the same origin only, no inline script, no text as
// HTML (W3C Trusted Types), no frames around the page.
const Security = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// File is a file of the page.
type File struct {
	Text []byte
	Type string // for the header Content-Type
	Tag  string // for the header ETag
}

// types are the content types of the files, by file name extension. The host's own list of types may lack them.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// Files are all files by their path, in the notation of http.ServeMux: the page at /{$}, the others below /page/.
func Files() map[string]*File {
	files := map[string]*File{}
	err := fs.WalkDir(static, "static", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := static.ReadFile(name)
		at := "/page/" + path.Base(name)
		if path.Base(name) == "index.html" {
			at = "/{$}"
		}
		files[at] = &File{Text: text, Type: types[path.Ext(name)], Tag: fmt.Sprintf(`"%x"`, sha256.Sum256(text))}
		return err
	})
	if err != nil { // cannot happen: the files are in this binary
		panic(err)
	}
	return files
}
