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

// testCase is an archive under testdata: the rules in the form in which they are restored or saved, by the names of
// inputs, and the policy that they make. Lines of its comment set what else the test needs:
//
//	device: ens3 ens4     the devices, when the rules do not say
//	router                the host forwards, and packets to others are compared, too
//	lax                   what is forwarded may be dropped by the kernel and passed by the policy
//	connected             packets of no connection, which the kernel does not translate, are not compared, nor those that
//	                      end on the way to a translated destination
//	exact                 what the report names changes no verdict of a packet
//	legacy                iptables-legacy loads the rules
//	except: tcp/22 rh0    packets to these ports, or with this routing header, are not compared, as rules without
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
	exact     bool // what the report names changes no verdict: only checks that the policy adds may
	written   bool // what the case has is imported, not what the tools print when they have loaded it
	packets   int  // to compare, if not packetsPerCase
}

// inputs are the parts of an archive that are imported.
var inputs = []string{"ipset", "iptables-save", "ip6tables-save", "nft"}

func cases(t *testing.T) (list []*testCase) {
	t.Helper()
	list = casesIn(t, "testdata")
	if len(list) < 12 {
		t.Fatalf("%d archives", len(list))
	}
	return list
}

// casesIn are the archives of a directory.
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

// section is the content of a part of the archive, or "".
func (c *testCase) section(name string) string {
	for _, f := range c.archive.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	return ""
}

// sources are the inputs as the archive has them.
func (c *testCase) sources() (list []importer.Source, format importer.Format) {
	for _, name := range inputs {
		if text := c.section(name); text != "" {
			list = append(list, importer.Source{Name: name, Data: []byte(text)})
			format = importer.Format(name)
		}
	}
	return list, format
}

// imports imports sources as the case wants it.
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

// lower reads and lowers a policy that was imported, and sees that it can be compiled.
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
