// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/test/testutil"
)

// TestFleetMistakes makes the mistakes of a new user with the commands for fleets and routers upstream. Each error must name the place, the cause and
// a remedy. No hub runs, so no command may need a request to a hub.
func TestFleetMistakes(t *testing.T) {
	testutil.RequireRoot(t) // some commands ask for rights first
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, d := range []string{"empty", "broken", "release", "missing"} {
		if err := os.Mkdir(at(d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, at("broken/hub.json"), "{")
	writeFile(t, at("release/policy.yaml"), "devices: [fw0]\ndefault: pass\n")
	writeFile(t, at("missing/policy.yaml"), "devices: [fw0]\ndefault: pass\nsets: {a: {file: none.txt}}\nrules: [{name: a, from: $a, then: drop}]\n")
	writeFile(t, at("junk"), "junk\n")
	mustFloodwall(t, "fleet", "key", at("key"))
	mustFloodwall(t, "hub", "init", "--dir", at("hub"), "--address", "127.0.0.1")
	push := func(what, key string) string {
		return "fleet push " + what + " --all --dir " + at("hub") + " --key " + key
	}
	for _, test := range []struct {
		command string
		exit    int
		err     string
		hint    string
	}{
		{push(at("none"), at("key")), 1, at("none") + " is not there", "a bundle is a directory with a policy.yaml"},
		{push(at("junk"), at("key")), 1, at("junk") + " is no directory", "a bundle is a directory with a policy.yaml"},
		{push(at("empty"), at("key")), 1, at("empty") + " has no policy.yaml", "a bundle is a directory"},
		{push(at("missing"), at("key")), 1, "none.txt", "put"},
		{push(at("release"), at("nokey")), 1, at("nokey") + " is not there", "floodwall-hub fleet key FILE"},
		{push(at("release"), at("junk")), 1, at("junk") + " can be read by others", "chmod 600"},
		{push(at("release"), at("key")), 1, "no hub can be reached", "floodwall-hub run"},
		{"fleet push " + at("release") + " --canary a_b --key " + at("key"), 2, `flag --canary: name "a_b"`, "floodwall-hub nodes"},
		{"fleet rollback --all --key " + at("nokey"), 1, at("nokey") + " is not there", "floodwall-hub fleet key FILE"},
		{"fleet key " + at("nodir/key"), 1, "the directory of " + at("nodir/key"), "make it first"},
		{"fleet key " + at("key"), 1, at("key") + " is there already", "another file"},
		{"fleet status --dir " + at("empty"), 1, at("empty") + " is not the state directory of a hub", "floodwall-hub init"},
		{"fleet trust BAD --state " + at("empty"), 1, "of no fleet", "floodwall-hub invite NAME"},
		{"hub run --dir " + at("broken"), 1, at("broken/hub.json") + " cannot be read", "backup"},
		{"hub init --nats junk --dir " + at("new"), 2, `flag --nats: "junk" is no address`, "tls://HOST:4222"},
		{"hub init --dir " + at("hub") + " --address 127.0.0.1", 1, "has the keys of a fleet already", "--dir"},
		{"hub invite a_b --dir " + at("hub"), 2, `NAME: name "a_b"`, "as web-1"},
		{"hub ban nonsense --dir " + at("hub"), 2, `PREFIX: not an address, prefix or range: "nonsense"`, "198.51.100.0/22"},
		{"hub unban 192.0.2.1/8 --dir " + at("hub"), 2, "192.0.2.1/8 has host bits set", "198.51.100.0/22"},
		{"join junk --state " + at("empty"), 2, "INVITATION: it is no invitation, or not whole", "floodwall-hub invite NAME"},
		{"hub nodes --dir " + at("hub"), 1, "no hub can be reached", "floodwall-hub run"},
		{"leave --state " + at("empty"), 1, "of no fleet", "floodwall-hub invite NAME"},
		{"bgp announce nonsense", 2, `"nonsense" is no address`, "192.0.2.7"},
		{"bgp announce 192.0.2.7 --proto foo", 2, `flag --proto: "foo"`, "tcp"},
		{"bgp status --run " + at("empty"), 1, "does not run", "floodwall-bgp"},
	} {
		out, err := floodwall(strings.Fields(test.command)...)
		exit := new(exec.ExitError)
		if !errors.As(err, &exit) || exit.ExitCode() != test.exit {
			t.Errorf("floodwall %s: %v, want exit status %d\n%s", test.command, err, test.exit, out)
			continue
		}
		problem, hint, _ := strings.Cut(out, "floodwall: hint: ")
		if !strings.Contains(problem, "floodwall: error: ") || !strings.Contains(problem, test.err) || !strings.Contains(hint, test.hint) {
			t.Errorf("floodwall %s: want %q and a hint with %q:\n%s", test.command, test.err, test.hint, out)
		}
	}
}
