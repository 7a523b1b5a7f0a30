// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestDocumentPolicies compiles each policy of the documents. At least one target must support it.
func TestDocumentPolicies(t *testing.T) {
	seen := 0
	for _, name := range documents(t) {
		dir := t.TempDir()
		blocks := fences(t, name)
		for _, db := range []string{"GeoLite2-Country.mmdb", "GeoLite2-ASN.mmdb"} { // no document can contain these files
			err := testutil.Write(filepath.Join(dir, db), testutil.Network{Prefix: "192.0.2.0/24", Country: "XX", ASN: 64500},
				testutil.Network{Prefix: "198.51.100.0/24", Country: "YY", ASN: 64501})
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, f := range blocks {
			if f.file != "" {
				writeFile(t, filepath.Join(dir, f.file), f.text)
			}
		}
		for _, f := range blocks {
			if f.lang != "yaml" || !strings.Contains(f.text, "devices:") {
				continue
			}
			seen++
			this := filepath.Join(dir, filepath.Dir(f.file), "this.yaml") // next to the lists that the policy names
			writeFile(t, this, f.text)
			compiles := func(target string) bool { return compiled(target, this) }
			if !slices.ContainsFunc(targets(false), compiles) {
				t.Errorf("%s: no target has this policy:\n%s", f.at, command(t, false, "check", this))
			}
		}
	}
	if seen < 2 {
		t.Errorf("the documents have %d policies", seen)
	}
}

// compiled reports whether a target supports a policy.
func compiled(target, policy string) bool {
	return exec.Command("floodwall", "compile", "--target", target, policy).Run() == nil
}

// targetsOf returns the targets that support a policy.
func targetsOf(t *testing.T, policy string) (list []string) {
	t.Helper()
	for _, target := range targets(false) {
		if compiled(target, policy) {
			list = append(list, target)
		}
	}
	return list
}

// command runs floodwall and returns its output. If must is set, a failure of the command ends the test.
func command(t *testing.T, must bool, args ...string) string {
	t.Helper()
	out, err := exec.Command("floodwall", args...).CombinedOutput()
	if err != nil && must {
		t.Fatalf("floodwall %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestDocumentCases sends the packets of each document's test cases to the document's policy in the kernel, on each target that supports the policy.
// The counters show which rule decided each packet.
func TestDocumentCases(t *testing.T) {
	for _, name := range documents(t) {
		has := false
		for _, f := range fences(t, name) {
			has = has || f.file == casesFile
		}
		if !has {
			continue
		}
		t.Run(strings.ReplaceAll(name, "/", "_"), func(t *testing.T) {
			if !testutil.Inside(t) {
				return
			}
			dir := t.TempDir()
			testutil.Veth(t, "eth0", "far", "192.0.2.1/24", "2001:db8::1/64")
			// The frames have this destination MAC address. The kernel does not accept packets from a source address without a route.
			for _, line := range []string{"link set eth0 address 02:00:00:00:00:02", "route add default dev eth0", "-6 route add default dev eth0"} {
				if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
					t.Fatalf("ip %s: %v: %s", line, err, out)
				}
			}
			for _, f := range fences(t, name) {
				if f.lang == "console" {
					imports(t, dir, f)
				}
				if f.file == "" {
					continue
				}
				writeFile(t, filepath.Join(dir, f.file), f.text)
				if f.file == casesFile {
					sendCases(t, f, filepath.Join(dir, policyFile))
				}
			}
		})
	}
}

// imports runs the commands of a block that import a policy.
func imports(t *testing.T, dir string, f fence) {
	t.Helper()
	for _, c := range f.commands(t) {
		if !strings.HasPrefix(c.command, "floodwall import") {
			continue
		}
		cmd := exec.Command("sh", "-c", c.command)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", c.command, err, out)
		}
	}
}

const (
	policyFile = "policy.yaml"
	casesFile  = "cases.txt"
)

// sendCases sends the packets in a block of test cases to a policy. It leaves out packets that need a conntrack state.
func sendCases(t *testing.T, f fence, policy string) {
	t.Helper()
	want := map[string]uint64{}
	var packets []string
	for line := range strings.Lines(f.text) {
		c, err := packet.ParseCase(strings.TrimSuffix(line, "\n"))
		if err != nil {
			t.Fatalf("%s: %v", f.at, err)
		}
		text, _, _ := strings.Cut(line, "  ")
		if c.Blank || strings.Contains(text, "state=") {
			continue
		}
		packets = append(packets, text)
		want[c.Reason]++
	}
	on := targetsOf(t, policy)
	if len(on) == 0 {
		t.Fatalf("%s: no target has the policy:\n%s", f.at, command(t, false, "check", policy))
	}
	for _, target := range on {
		command(t, true, "apply", "--force", "--target", target, policy)
		sent := false
		err := testutil.SendFor("far", packets, func(int) bool { sent = !sent; return sent })
		if err != nil {
			t.Fatal(err)
		}
		if wrong := await(t, want); wrong != "" {
			t.Errorf("%s: target %s: %s\n%s", f.at, target, wrong, command(t, false, "status", "--all"))
		}
		command(t, true, "unload")
	}
}

// await waits until the rules have counted the expected packets, because counting takes the kernel a moment. It returns a description of the rules
// with other counts, or "" if there are none.
func await(t *testing.T, want map[string]uint64) (wrong string) {
	t.Helper()
	testutil.Eventually(time.Minute, func() bool {
		got := decided(t)
		wrong = ""
		for reason, n := range want {
			// IPv6 packets of the host itself also reach the default.
			if reason != "" && (got[reason] < n || got[reason] > n && reason != "default") {
				wrong += fmt.Sprintf("%s decided %d packets, want %d; ", reason, got[reason], n)
			}
		}
		return wrong == ""
	})
	return wrong
}

// decided returns the packet count of each rule and check.
func decided(t *testing.T) map[string]uint64 {
	t.Helper()
	status, err := control.Instance{Dir: datapath.DefaultDir}.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	list := map[string]uint64{}
	for _, r := range slices.Concat(status.Rules, status.Checks) {
		list[r.Name] += r.Packets
	}
	list["default"] += status.Default.Packets
	return list
}
