// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"bytes"
	"encoding/json"

	"github.com/floodwall/floodwall/internal/bgp/wire"
)

// sameWanted reports whether two Wanted are equal. Times are compared in their JSON form.
func sameWanted(a, b *wire.Wanted) bool {
	one, err := json.Marshal(a)
	two, failed := json.Marshal(b)
	return err == nil && failed == nil && bytes.Equal(one, two)
}
