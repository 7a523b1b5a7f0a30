// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNameLines reads lines of lists of names, in the forms that are in use. It checks the names, or that the line is an error.
func TestNameLines(t *testing.T) {
	for _, row := range []struct{ line, want string }{
		{"tracker.example", "tracker.example"},
		{"tracker.example # why", "tracker.example"},
		{"# nothing", ""},
		{"0.0.0.0 tracker.example", "tracker.example"},
		{"127.0.0.1\ttracker.example ad.example # two", "tracker.example ad.example"},
		{"::1 localhost ip6-localhost", ""},
		{"0.0.0.0 0.0.0.0", ""},
		{"192.0.2.5 shop.example", "error"},
		{"tracker.example CNAME .", "tracker.example"},
		{"*.tracker.example 300 IN CNAME *. ; why", "tracker.example"},
		{"other.example CNAME rpz-passthru.", "error"},
		{"other.example CNAME walled.example.", "error"},
		{"$TTL 300", ""},
		{"@ SOA ns.example. root.example. 1 2 3 4 5", ""},
		{"||tracker.example^", "tracker.example"},
		{"||tracker.example^$third-party", "error"},
		{"@@||shop.example^", "error"},
		{"shop.example##.banner", "error"},
		{"shop.example#@#.banner", "error"},
		{"! Title: a list", ""},
		{"[Adblock Plus]", ""},
		{"address=/tracker.example/0.0.0.0", "tracker.example"},
		{"address=/tracker.example/#", "tracker.example"},
		{"local=/tracker.example/", "tracker.example"},
		{"server=/corp.example/192.0.2.53", "error"},
		{"address=/shop.example/192.0.2.5", "error"},
		{`local-zone: "tracker.example" always_nxdomain`, "tracker.example"},
		{`local-zone: "shop.example." transparent`, "error"},
		{`local-data: "tracker.example A 0.0.0.0"`, "tracker.example"},
		{"server:", ""},
	} {
		path := filepath.Join(t.TempDir(), "names.txt")
		if err := os.WriteFile(path, []byte(row.line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		names, err := readNames(path)
		got := strings.Join(names, " ")
		if err != nil {
			got = "error"
			if !strings.HasPrefix(fmt.Sprint(err), path+":1: ") {
				t.Errorf("%s: %v", row.line, err)
			}
		}
		if got != row.want {
			t.Errorf("%s: %q, %v, want %q", row.line, got, err, row.want)
		}
	}
}
