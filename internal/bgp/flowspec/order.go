package flowspec

import (
	"bytes"
	"cmp"
)

// Compare orders flow specifications of one family: a negative number says that a is asked before b, 0 that they are equal.
// RFC 8955, 5.1: the first component in which they differ decides. A lower type comes first, and a component before none. Of
// prefixes the longer comes first when it is inside the other, else the lower. Other components are compared byte by byte, and
// the longer comes first when all common bytes are equal.
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
