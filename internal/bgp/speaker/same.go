package speaker

import (
	"bytes"
	"encoding/json"

	"github.com/floodwall/floodwall/internal/bgp/wire"
)

// sameWanted reports whether two say the same. Times are compared as they are written.
func sameWanted(a, b *wire.Wanted) bool {
	one, err := json.Marshal(a)
	two, failed := json.Marshal(b)
	return err == nil && failed == nil && bytes.Equal(one, two)
}
