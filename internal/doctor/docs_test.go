// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocumented checks that docs/doctor.md names each finding in the source.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	named := regexp.MustCompile(`(?:\bID: +|[iI][dD] += |unseen\(|(?m:^\t\{))"([a-z]+(?:-[a-z]+)*-?)"`)
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			names[strings.TrimSuffix(m[1], "-")] = true
		}
	}
	for _, known := range []string{"queue-irqs", "synproxy-announces", "conntrack-timeouts", "conntrack-early-drops", "manager", "somaxconn"} {
		if !names[known] {
			t.Errorf("the source has no finding %s, or this test does not see it", known)
		}
	}
	delete(names, "ip") // an address family, not a finding
	for name := range names {
		if !strings.Contains(string(page), "`"+name+"`") && !strings.Contains(string(page), "`"+name+"-*`") {
			t.Errorf("docs/doctor.md lacks %s", name)
		}
	}
}
