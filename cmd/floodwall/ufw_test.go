// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/policy"
)

// TestFromUFW runs each line of the table in the guide for users of ufw, on the policy of that guide. It compares the difference that the command
// prints with the entry in the table. A line that deletes runs behind the line that adds.
func TestFromUFW(t *testing.T) {
	t.Parallel()
	const guide = "docs/guides/from-ufw.md"
	text, err := os.ReadFile(filepath.Join(top, guide))
	if err != nil {
		t.Fatal(err)
	}
	blocks := fences(t, guide)
	first := blocks[slices.IndexFunc(blocks, func(f fence) bool { return f.file == policyFile })].text
	row := regexp.MustCompile("(?m)^\\| `(ufw [^`]*)` \\| (.*?) \\| (.*) \\|$")
	lines := 0
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		entry := regexp.MustCompile("`({.*)`").FindStringSubmatch(m[3])
		if m[2] == "–" {
			if entry != nil && !valid(entry[1]) {
				t.Errorf("%s: the entry is not valid: %s", m[1], entry[1])
			}
			continue
		}
		line := regexp.MustCompile("^`floodwall ([^`]*)`").FindStringSubmatch(m[2])
		if line == nil || strings.Contains(m[2], "by the name") {
			continue
		}
		lines++
		file := filepath.Join(t.TempDir(), policyFile)
		writeFile(t, file, first)
		run := func(line string) string {
			out, err := exec.Command("sh", "-c", "floodwall "+line+" --no-apply --file "+file).CombinedOutput()
			if err != nil {
				t.Errorf("floodwall %s: %v\n%s", line, err, out)
			}
			return string(out)
		}
		if add, deletes := strings.CutPrefix(line[1], "delete "); deletes {
			run(add)
			run(line[1])
			if now, err := os.ReadFile(file); err != nil || string(now) != first {
				t.Errorf("floodwall %s leaves: %v\n%s", line[1], err, now)
			}
			continue
		}
		if out := run(line[1]); entry == nil || !strings.Contains(out, "\n+  - "+entry[1]+"\n") {
			t.Errorf("floodwall %s: the guide has %q\n%s", line[1], entry, out)
		}
	}
	if lines < 20 {
		t.Errorf("only %d lines were found", lines)
	}
}

// valid reports whether an entry is a service of a policy.
func valid(entry string) bool {
	_, err := policy.Parse("policy.yaml", []byte("devices: [eth0]\nservices:\n  - "+entry+"\n"))
	return err == nil
}
