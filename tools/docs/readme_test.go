// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const top = "../.."

// TestReadme checks that the README and its chart match the stored result.
func TestReadme(t *testing.T) {
	want, err := readmeFiles(top)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range want {
		got, err := os.ReadFile(filepath.Join(top, name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(text, string(got)); diff != "" {
			t.Errorf("%s is not of %s: run make readme-bench (-want +got):\n%s", name, storedFile, diff)
		}
	}
}

// TestPicture checks that the chart is well-formed, names every line, and has light and dark colours.
func TestPicture(t *testing.T) {
	files, err := readmeFiles(top)
	if err != nil {
		t.Fatal(err)
	}
	svg := files[pictureFile]
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"floodwall", "nft, ingress hook", limitLabel, "prefers-color-scheme: dark", "--line0"} {
		if !strings.Contains(svg, want) {
			t.Errorf("the chart has no %q", want)
		}
	}
}
