// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const verifierLog = `verification time 120345 usec
stack depth 184+0+96
processed 545522 insns (limit 1000000) max_states_per_insn 31 total_states 18195 peak_states 2947 mark_read 120
`

// TestVerifierFile compares statistics with known statistics of the same kernel release, of another release, and of an unknown kernel.
func TestVerifierFile(t *testing.T) {
	v, err := ReadVerified(verifierLog)
	if want := (Verified{545_522, 18_195, 2_947, 184}); err != nil || v != want {
		t.Fatalf("%+v, %v; want %+v", v, err, want)
	}
	if _, err := ReadVerified("func#0 @0"); err == nil {
		t.Error("a log without statistics has some")
	}
	path := filepath.Join(t.TempDir(), "verifier.json")
	f := VerifierFile{"6.1": {"6.1.0-50-amd64", map[string]Verified{"p": v}}}
	if err := f.Write(path); err != nil {
		t.Fatal(err)
	}
	read, err := ReadVerifierFile(path)
	if diff := cmp.Diff(f, read); diff != "" || err != nil {
		t.Fatalf("%v, -want +got:\n%s", err, diff)
	}
	more := v
	more.Instructions, more.Stack = more.Instructions*105/100, 320
	huge := Verified{Instructions: 999_999, Stack: 513}
	for _, test := range []struct {
		release, program string
		got              Verified
		want             []string
	}{
		{"6.1.0-50-amd64", "p", v, nil},
		{"6.1.0-50-amd64", "p", more, []string{"572798 instructions processed, it was 545522", "320 bytes in the largest frame, it was 184"}},
		{"6.1.0-51-amd64", "p", more, []string{"320 bytes in the largest frame, it was 184"}},
		{"6.1.0-50-amd64", "q", v, []string{"it is not known of this kernel: make verifier"}},
		{"7.0.1", "q", v, nil},
		{"7.0.1", "q", huge, []string{"999999 instructions processed, at most 700000", "a frame of 513 bytes, at most 512"}},
	} {
		got := read.Compare(test.release, test.program, test.got)
		if !slices.EqualFunc(got, test.want, strings.HasPrefix) {
			t.Errorf("%s, %s: %q, want %q", test.release, test.program, got, test.want)
		}
	}
	for release, want := range map[string]string{"6.1.0-50-cloud-amd64": "6.1", "6.12.95+deb12": "6.12", "6.18-rc1": "6.18", "7": "7"} {
		if got := VersionOf(release); got != want {
			t.Errorf("version of %s: %s, want %s", release, got, want)
		}
	}
}
