// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/policy"
)

// TestSecretExposed compiles a guard whose file of cookie secrets is readable for other users. With the secret, these users could make cookies for
// forged addresses.
func TestSecretExposed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secret := filepath.Join(dir, "cookies")
	if err := os.WriteFile(secret, []byte("00112233445566778899aabbccddeeff\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, errs := policy.Parse(filepath.Join(dir, "policy.yaml"), []byte("devices: [eth0]\nservices: [{name: dns, port: udp/53, guard: {type: dns, secret: cookies}}]\n"))
	if errs != nil {
		t.Fatal(errs)
	}
	for mode, want := range map[os.FileMode]string{
		0o600: "", 0o640: "",
		0o644: `service "dns": guard: ` + secret + " can be read by others: its mode is 0644; chmod 640 " + secret,
		0o660: `service "dns": guard: ` + secret + " can be written by others: its mode is 0660; chmod 640 " + secret,
	} {
		if err := os.Chmod(secret, mode); err != nil {
			t.Fatal(err)
		}
		got := ""
		_, _, err := compile.Lower(p)
		if mistakes := (policy.Errors)(nil); errors.As(err, &mistakes) {
			got = mistakes[0].Msg + "; " + mistakes[0].Hint
		}
		if got != want {
			t.Errorf("mode %04o: %q, not %q", mode, got, want)
		}
	}
}
