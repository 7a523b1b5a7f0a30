// SPDX-License-Identifier: Apache-2.0

package importer_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/importer"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/policy"
)

var update = flag.Bool("update", false, "rewrite the expectations under testdata")

// testCase is an archive under testdata. It has the rules in the form in which they are restored or saved, under the names in inputs, and the policy
// that an import makes of these rules. Lines of the archive's comment set the options of the test:
//
//	device: ens3 ens4     the devices, if the rules do not name them
//	router                the host forwards; packets to other hosts are compared, too
//	lax                   the kernel may drop forwarded packets that the policy passes
//	connected             two kinds of packets are not compared: packets of no connection, which the kernel does not translate, and
//	                      packets that are dropped on the way to a translated destination
//	exact                 the rules that the report names do not change the verdict of any packet
//	legacy                iptables-legacy loads the rules
//	except: tcp/22 rh0    packets to these ports, or with this routing header, are not compared, since rules without
//	                      equal decide about them
type testCase struct {
	name    string
	file    string
	archive *txtar.Archive
	device  []string
	except  []string
	router  bool
	lax     bool
	legacy  bool

	connected bool
	exact     bool // no rule that the report names may change a verdict; only checks that the policy adds may
	written   bool // the archive's text is imported; false: the output of the tools that loaded the text
	packets   int  // number of packets to compare, if not packetsPerCase
}

// inputs are the names of those parts of an archive that are imported.
var inputs = []string{"ipset", "iptables-save", "ip6tables-save", "nft"}

func cases(t *testing.T) (list []*testCase) {
	t.Helper()
	list = casesIn(t, "testdata")
	if len(list) < 12 {
		t.Fatalf("%d archives", len(list))
	}
	return list
}

// casesIn returns the archives of a directory.
func casesIn(t *testing.T, dir string) (list []*testCase) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		c := &testCase{name: strings.TrimSuffix(filepath.Base(file), ".txtar"), file: file, archive: a}
		for line := range strings.SplitSeq(string(a.Comment), "\n") {
			key, value, _ := strings.Cut(line, ":")
			switch key {
			case "device":
				c.device = strings.Fields(value)
			case "except":
				c.except = strings.Fields(value)
			case "router":
				c.router = true
			case "lax":
				c.lax = true
			case "connected":
				c.connected = true
			case "legacy":
				c.legacy = true
			case "exact":
				c.exact = true
			}
		}
		list = append(list, c)
	}
	return list
}

// section returns the content of a part of the archive, or "".
func (c *testCase) section(name string) string {
	for _, f := range c.archive.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	return ""
}

// sources returns the inputs as they are in the archive.
func (c *testCase) sources() (list []importer.Source, format importer.Format) {
	for _, name := range inputs {
		if text := c.section(name); text != "" {
			list = append(list, importer.Source{Name: name, Data: []byte(text)})
			format = importer.Format(name)
		}
	}
	return list, format
}

// imports imports sources with the options of the case.
func (c *testCase) imports(t *testing.T, sources []importer.Source, format importer.Format) *importer.Result {
	t.Helper()
	r, err := importer.Import(context.Background(), sources, importer.Options{
		Format: format, Devices: c.device, Router: c.router, ListFiles: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	same(t, r)
	return r
}

// lower parses and lowers an imported policy, and checks that it can be compiled.
func lower(t *testing.T, r *importer.Result) *ir.Program {
	t.Helper()
	dir := t.TempDir()
	for _, l := range r.Lists {
		if err := os.WriteFile(filepath.Join(dir, l.Name), l.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p, err := policy.Parse(filepath.Join(dir, "policy.yaml"), []byte(r.Policy))
	if err != nil {
		t.Fatalf("%v\n%s", err, r.Policy)
	}
	program, _, err := compile.Lower(p)
	if err != nil {
		t.Fatalf("%v\n%s", err, r.Policy)
	}
	optimized, _ := compile.Optimize(program)
	if _, err := plan.Hoist(optimized, plan.TargetXDP); err != nil {
		t.Errorf("%v\n%s", err, r.Policy)
	}
	return program
}

func writeFile(t *testing.T, file string, data []byte) {
	t.Helper()
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
