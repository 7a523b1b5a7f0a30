// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"os"
	"path/filepath"
	"testing"
)

func TestParseCPUs(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       CPUs
	}{
		{
			"two of x86, virtual",
			"processor\t: 0\nmodel name\t: A CPU @ 2.0GHz\nflags\t\t: fpu hypervisor\n\nprocessor\t: 1\nmodel name\t: another\nflags\t\t: fpu\n",
			CPUs{Model: "A CPU @ 2.0GHz", Online: 2, Virtual: true},
		},
		{"arm64, which gives no name", "processor\t: 0\nBogoMIPS\t: 50.00\n", CPUs{Online: 1}},
		{"a flag that only looks like it", "processor\t: 0\nflags\t\t: hypervisors\n", CPUs{Online: 1}},
	} {
		if got := parseCPUs(tt.text); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestMitigations(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"srbds": "Not affected\n", "spectre_v2": "Mitigation: IBRS\n", "mds": "Vulnerable\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := MitigationsText(mitigations(dir)), "mds: Vulnerable; spectre_v2: Mitigation: IBRS"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := MitigationsText(mitigations(filepath.Join(dir, "absent"))); got != "" {
		t.Errorf("%q of none", got)
	}
}
