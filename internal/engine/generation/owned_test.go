package generation

import (
	"testing"

	"github.com/floodwall/floodwall/internal/engine/manifest"
)

// TestOwned divides rules by their owners, and says how many more there may be.
func TestOwned(t *testing.T) {
	t.Parallel()
	list := []manifest.Temporary{{Name: "1", Owner: "a"}, {Name: "2", Owner: "b"}, {Name: "3", Owner: "a"}}
	own, others := Owned(list, "a")
	if len(own) != 2 || own[0].Name != "1" || own[1].Name != "3" || len(others) != 1 || others[0].Name != "2" {
		t.Errorf("own %v, others %v", own, others)
	}
	for n, want := range map[int]int{0: Most, 1: Most - 1, Most: 0, Most + 1: 0} {
		if got := Free(make([]manifest.Temporary, n)); got != want {
			t.Errorf("beside %d there may be %d, want %d", n, got, want)
		}
	}
}
