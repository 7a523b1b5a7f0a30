// SPDX-License-Identifier: Apache-2.0

package importer_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/importer"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestNftIsConfined runs as root. It imports nft texts that contain more than a ruleset. nft must not read a file that only root can read, and nft
// must have no rights over the host.
func TestNftIsConfined(t *testing.T) {
	testutil.RequireRoot(t)
	testutil.RequireTool(t, "nft")
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("table ip secret {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// When nft reads this, the process has opened /proc/self, which shows the namespaces that nft runs in.
	const rules = "table inet t { chain c { type filter hook input priority 0; tcp dport 23 drop; }; }\n"
	for _, tt := range []struct{ name, text, err string }{
		{"a ruleset", rules, ""},
		{"a file of root's", rules + "include \"" + secret + "\"\n", "secret"},
		{"a setting of the host's", "include \"/proc/1/environ\"\n" + rules, "environ"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := importer.Import(context.Background(), []importer.Source{{Name: "f", Data: []byte(tt.text)}},
				importer.Options{Format: importer.Nft, Devices: []string{"fw0"}})
			switch {
			case tt.err == "" && (err != nil || r.Drops.Policy != 1):
				t.Errorf("%v", err)
			case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
				t.Errorf("nft read what only root can: %v", err)
			}
		})
	}
}
