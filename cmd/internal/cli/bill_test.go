package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schemas are the files of CycloneDX's schemas, which come with its library.
func schemas(t *testing.T) *jsonschema.Compiler {
	t.Helper()
	out, err := exec.Command("../../../scripts/go", "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "schema", "*.schema.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the library has no schemas: %v", err)
	}
	for _, file := range append(files, filepath.Join(filepath.Dir(files[0]), "jsf-0.82.schemax.json")) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err == nil {
			err = c.AddResource("http://cyclonedx.org/schema/"+strings.Replace(filepath.Base(file), "schemax", "schema", 1), schema)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// TestBill writes the bill of a program: CycloneDX's schema has it, every module is in it, and writing it
// again gives the same bytes.
func TestBill(t *testing.T) {
	info, err := debug.ParseBuildInfo(noted)
	if err != nil {
		t.Fatal(err)
	}
	info.GoVersion = "go1.26.1"
	var first, second bytes.Buffer
	for _, w := range []*bytes.Buffer{&first, &second} {
		if err := writeBill(w, info, "1.2.3"); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the second bill differs from the first")
	}
	schema, err := schemas(t).Compile("http://cyclonedx.org/schema/bom-1.6.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(first.Bytes()))
	if err == nil {
		err = schema.Validate(value)
	}
	if err != nil {
		t.Errorf("%v in\n%s", err, &first)
	}
	var bill struct {
		Metadata struct {
			Component struct{ PURL, Version string }
		}
		Components []struct{ PURL string }
	}
	if err := json.Unmarshal(first.Bytes(), &bill); err != nil {
		t.Fatal(err)
	}
	if got := bill.Metadata.Component; !strings.HasPrefix(got.PURL, "pkg:golang/github.com/floodwall/floodwall") || got.Version != "1.2.3" {
		t.Errorf("the program is %+v", got)
	}
	want := []string{"pkg:golang/std@1.26.1", "pkg:golang/go4.org/netipx@v0.0.0-20260823151212-3075585bcbeb",
		"pkg:golang/example.org/a@v1.2.3", "pkg:golang/example.org/fork@v2.0.0%2Bincompatible"}
	var got []string
	for _, c := range bill.Components {
		got = append(got, c.PURL)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("components (-want +got):\n%s", diff)
	}
}

// noted is what the Go command notes in a program. The program of a test has no modules noted.
const noted = "path\tgithub.com/floodwall/floodwall/cmd/floodwall\n" +
	"mod\tgithub.com/floodwall/floodwall\t(devel)\t\n" +
	"dep\tgo4.org/netipx\tv0.0.0-20260823151212-3075585bcbeb\th1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n" +
	"dep\texample.org/a\tv1.2.3\th1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n" +
	"dep\texample.org/b\tv1.0.0\n=>\texample.org/fork\tv2.0.0+incompatible\th1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n"
