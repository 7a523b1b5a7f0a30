// SPDX-License-Identifier: Apache-2.0

package schemas

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/CycloneDX/cyclonedx-go" // so that a build fetches the library, whose schemas CycloneDX reads
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/floodwall/floodwall/test/testutil"
)

// CycloneDX returns the JSON schema of CycloneDX 1.6, a format of bills of materials. The library that writes such bills contains the files of the
// schema.
func CycloneDX(t testing.TB) *jsonschema.Schema {
	t.Helper()
	out, err := exec.Command(filepath.Join(testutil.Top(t), "scripts/go"), "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go").Output()
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
	schema, err := c.Compile("http://cyclonedx.org/schema/bom-1.6.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}
