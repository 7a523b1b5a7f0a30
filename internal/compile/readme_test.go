package compile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/compile"
)

// TestReadme compiles each policy of the README, as it stands there.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, line := range map[string]string{"blocked.txt": "192.0.2.0/24\n", "names.txt": "evil.example\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	policies := strings.Split(string(readme), "```yaml\n")[1:]
	if len(policies) < 3 {
		t.Fatalf("%d policies in the README", len(policies))
	}
	for _, text := range policies {
		text, _, _ = strings.Cut(text, "```")
		s := lowerFile(t, filepath.Join(dir, "policy.yaml"), text)
		if _, err := compile.ToXDP(s.optimized().program, compile.XDPOptions{}); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	}
}
