// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/compile/image"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/test/subject"
)

// TestListingHidesKeys lists every constant of the C program, and an unknown constant. The listing must not show keys and seeds.
func TestListingHidesKeys(t *testing.T) {
	x, err := xdpgen.Generate(subject.Lower(t, "default: pass").Program, xdpgen.Options{QuestionKey: subject.QuestionKey})
	if err != nil {
		t.Fatal(err)
	}
	const value = 0x5eed5eed
	x.Constants = map[string]any{"new": uint64(value)}
	for name, v := range image.Load().Variables {
		if v.Constant() {
			x.Constants[name] = uint64(value)
		}
	}
	var hidden []string
	for _, m := range regexp.MustCompile(`(?m)^  (\w+) +random$`).FindAllStringSubmatch(x.Listing(), -1) {
		hidden = append(hidden, m[1])
	}
	slices.Sort(hidden)
	want := []string{"buckets6_seed", "hosts4_factor", "hosts4_key", "limit_keys", "limit_mix", "name_key", "new", "question_key"}
	if diff := cmp.Diff(want, hidden); diff != "" {
		t.Errorf("hidden (-want +got):\n%s", diff)
	}
}
