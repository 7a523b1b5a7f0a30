// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/test/subject"
)

// TestGolden compares the compiled form of policies, and the output for all targets, with archives.
func TestGolden(t *testing.T) { subject.Goldens(t) }

// TestListingNamesAll checks that a listing contains everything that is loaded, except secrets.
func TestListingNamesAll(t *testing.T) {
	s := subject.Lower(t, `
checks: strict
sets: {office: [203.0.113.0/24, "2001:db8::/48"], bans: {dynamic: true, max: 5}}
rules: [{from: [$office, $bans], to: $office, then: drop}]
`)
	for _, x := range s.Forms(t) {
		listing := x.Listing()
		for name := range x.Constants {
			if !strings.Contains(listing, "  "+name+" ") {
				t.Errorf("%s: constant %s is missing", x.Form, name)
			}
		}
		for name := range x.Shapes {
			if !strings.Contains(listing, "  "+name+" ") {
				t.Errorf("%s: map %s is missing", x.Form, name)
			}
		}
		if exits, want := strings.Count(listing, " exit\n"), countExits(&x.Image); exits != want {
			t.Errorf("%s: %d exits, want %d", x.Form, exits, want)
		}
		for _, secret := range []string{fmt.Sprint(subject.QuestionKey), fmt.Sprintf("%#x", subject.QuestionKey)} {
			if strings.Contains(listing, secret) {
				t.Errorf("%s: the key %s of questions is in the listing", x.Form, secret)
			}
		}
	}
}

func countExits(im *image.Image) (n int) {
	for _, ins := range im.Decide {
		if ins.OpCode == 0x95 { // BPF_JMP | BPF_EXIT
			n++
		}
	}
	return n
}
