// SPDX-License-Identifier: Apache-2.0

package flowspec

import (
	"bytes"
	"cmp"
)

// Compare compares flow specifications of one family. The result is negative when a is evaluated before b, and 0 when they are equal. By RFC 8955,
// 5.1, the first component in which they differ decides. A lower type comes before a higher one, and a component comes before a missing one. If one
// of two prefixes lies in the other, the longer one comes first; otherwise the lower one comes first. Other components are compared byte by byte. If
// one is the beginning of the other, the longer one comes first.
func Compare(a, b Flow) int {
	for i := range min(len(a.Components), len(b.Components)) {
		if order := compareComponents(&a.Components[i], &b.Components[i]); order != 0 {
			return order
		}
	}
	return cmp.Compare(len(b.Components), len(a.Components))
}

func compareComponents(a, b *Component) int {
	switch {
	case a.Type != b.Type:
		return cmp.Compare(a.Type, b.Type)
	case a.Type.prefixed() && a.Prefix.Overlaps(b.Prefix):
		return cmp.Compare(b.Prefix.Bits(), a.Prefix.Bits())
	case a.Type.prefixed():
		return a.Prefix.Addr().Compare(b.Prefix.Addr())
	}
	common := min(len(a.Terms), len(b.Terms))
	if order := bytes.Compare(a.Terms[:common], b.Terms[:common]); order != 0 {
		return order
	}
	return cmp.Compare(len(b.Terms), len(a.Terms))
}
