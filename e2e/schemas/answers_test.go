// SPDX-License-Identifier: Apache-2.0

package schemas

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/floodwall/floodwall/test/testutil"
)

// program returns the path of floodwall, which is built once.
func program(t *testing.T) string {
	t.Helper()
	file, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

var built = sync.OnceValues(func() (string, error) {
	dir, err := filepath.Abs("../../build/schemas")
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return "", err
	}
	if out, err := exec.Command("../../scripts/build", "v1.2.3", dir, "", "floodwall").CombinedOutput(); err != nil {
		return "", fmt.Errorf("building floodwall: %w\n%s", err, out)
	}
	return filepath.Join(dir, "floodwall"), nil
})

func parsed(t *testing.T, text []byte) any {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return value
}

// run runs a command of floodwall that must succeed, and returns its output.
func run(t *testing.T, args ...string) []byte {
	t.Helper()
	out, err := exec.Command(program(t), args...).Output()
	if err != nil {
		t.Fatalf("floodwall %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// TestBill checks the bill of materials of the program by CycloneDX's schema.
func TestBill(t *testing.T) {
	bill := run(t, "version", "--sbom")
	if err := CycloneDX(t).Validate(parsed(t, bill)); err != nil {
		t.Errorf("%v in\n%s", err, bill)
	}
}

// get returns the answer of the daemon's socket to a GET request.
func get(path string) (status int, body []byte, err error) {
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", "/run/floodwall/read.sock")
	}}}
	answer, err := client.Get("http://floodwall" + path)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	body, err = io.ReadAll(answer.Body)
	return answer.StatusCode, body, err
}

// TestOpenAPI compares answers with the schemas of the API's OpenAPI document, which is docs/openapi.json.
func TestOpenAPI(t *testing.T) {
	file := program(t) // outside of the namespaces, as building may fetch
	if !testutil.Inside(t) {
		return
	}
	before := testutil.Now()
	testutil.Veth(t, "fw0", "fw1", "192.0.2.1/24")
	t.Setenv("SSH_CONNECTION", "203.0.113.5 50000 192.0.2.1 22")
	t.Cleanup(func() {
		run(t, "unload")
		if found := testutil.Leftovers(before); found != nil {
			t.Errorf("left behind:\n%s", strings.Join(found, "\n"))
		}
	})
	daemon := exec.Command(file, "daemon")
	if err := testutil.Start(daemon); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		daemon.Process.Kill()
		daemon.Wait()
	})
	var document []byte
	if !testutil.Eventually(time.Minute, func() bool {
		status, body, err := get("/v1/openapi.json")
		document = body
		return err == nil && status == http.StatusOK
	}) {
		t.Fatal("the daemon does not answer")
	}
	if committed, err := os.ReadFile("../../docs/openapi.json"); err != nil || !bytes.Equal(committed, document) {
		t.Errorf("docs/openapi.json is not what the API hands out (%v): run make generate", err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("openapi.json", parsed(t, document)); err != nil {
		t.Fatal(err)
	}
	fits := func(path, at, response string, want int) {
		t.Helper()
		schema, err := c.Compile(fmt.Sprintf("openapi.json#/paths/%s/get/responses/%s/content/application~1json/schema", strings.ReplaceAll(at, "/", "~1"), response))
		if err != nil {
			t.Fatal(err)
		}
		status, body, err := get(path)
		if err != nil || status != want {
			t.Fatalf("%s: status %d, %v", path, status, err)
		}
		if err := schema.Validate(parsed(t, body)); err != nil {
			t.Errorf("%s %s: %v\n%s", path, response, err, body)
		}
	}
	fits("/v1/status", "/v1/status", "default", http.StatusNotFound)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte("devices: [fw0]\ndefault: pass\nsets:\n  bans: {dynamic: true, max: 1000, timeout: 1h}\nrules:\n"+
		"  - {name: listed, from: $bans, then: drop}\n  - {name: port7, proto: udp, port: 7, then: drop}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "apply", policy)
	run(t, "block", "198.51.100.7")
	for _, path := range []string{"/v1/status", "/v1/rules", "/v1/sets", "/v1/health"} {
		fits(path, path, "200", http.StatusOK)
	}
	fits("/v1/sets/bans/entries", "/v1/sets/{name}/entries", "200", http.StatusOK)
}
