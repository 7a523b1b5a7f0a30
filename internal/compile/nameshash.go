package compile

import (
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/floodwall/floodwall/internal/siphash"
)

// hashLabel hashes a label of at most 63 octets: its length and its text, filled up with zeros to whole words.
func hashLabel(h *siphash.Hash, text string) {
	var words [64]byte
	words[0] = uint8(len(text))
	copy(words[1:], text)
	for i := 0; i <= len(text); i += 8 {
		h.Add(binary.LittleEndian.Uint64(words[i:]))
	}
}

// unescaped is a label as it stands in a packet: packet.Query.Name writes octets that are not printable, dots and
// backslashes as \DDD in decimal.
func unescaped(label string) string {
	plain, escaped, found := strings.Cut(label, `\`)
	if !found {
		return label
	}
	octet, err := strconv.ParseUint(escaped[:min(3, len(escaped))], 10, 8)
	if err != nil {
		return plain + `\` + unescaped(escaped)
	}
	return plain + string([]byte{byte(octet)}) + unescaped(escaped[3:])
}
