// SPDX-License-Identifier: Apache-2.0

package importer_test

import (
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/floodwall/floodwall/test/testutil"
)

// TestGolden imports each archive's rules. It compares the policy and the list files with those in the archive. With -update it rewrites those in the
// archive.
func TestGolden(t *testing.T) {
	for _, c := range cases(t) {
		t.Run(c.name, func(t *testing.T) {
			sources, format := c.sources()
			if format == "nft" {
				testutil.RequireTool(t, "nft")
				testutil.RequireRoot(t) // needed to create the namespace in which nft loads the text
			}
			r := c.imports(t, sources, format)
			lower(t, r)
			if d := r.Drops; d.Input != d.Policy+d.Lost+d.Aside {
				t.Errorf("drops %+v", d)
			}
			got := []txtar.File{{Name: "policy.yaml", Data: []byte(r.Policy)}}
			for _, l := range r.Lists {
				got = append(got, txtar.File{Name: l.Name, Data: l.Data})
			}
			if *update {
				c.rewrite(t, got)
				return
			}
			for _, f := range got {
				if diff := cmp.Diff(c.section(f.Name), string(f.Data)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", f.Name, diff)
				}
			}
		})
	}
}

// rewrite replaces all parts of the archive except the inputs.
func (c *testCase) rewrite(t *testing.T, got []txtar.File) {
	t.Helper()
	a := &txtar.Archive{Comment: c.archive.Comment}
	for _, f := range c.archive.Files {
		if slices.Contains(inputs, f.Name) {
			a.Files = append(a.Files, f)
		}
	}
	a.Files = append(a.Files, got...)
	if err := os.WriteFile(c.file, txtar.Format(a), 0o644); err != nil {
		t.Fatal(err)
	}
}
