// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"encoding/binary"
	"math/bits"
	"strconv"
	"strings"
)

// sipHash is the state of SipHash-1-3 (Aumasson and Bernstein, SipHash: a fast short-input PRF, 2012) over complete words, as bpf/names.h computes
// it.
type sipHash struct{ a, b, c, d uint64 }

func newSIPHash(key [2]uint64) sipHash {
	return sipHash{
		key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d,
		key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573,
	}
}

func (h *sipHash) round() {
	h.a += h.b
	h.c += h.d
	h.b = bits.RotateLeft64(h.b, 13) ^ h.a
	h.d = bits.RotateLeft64(h.d, 16) ^ h.c
	h.a = bits.RotateLeft64(h.a, 32)
	h.c += h.b
	h.a += h.d
	h.b = bits.RotateLeft64(h.b, 17) ^ h.c
	h.d = bits.RotateLeft64(h.d, 21) ^ h.a
	h.c = bits.RotateLeft64(h.c, 32)
}

// label adds a label of at most 63 bytes to the hash: its length and its text, padded with zeros to complete words.
func (h *sipHash) label(text string) {
	var words [64]byte
	words[0] = uint8(len(text))
	copy(words[1:], text)
	for i := 0; i <= len(text); i += 8 {
		word := binary.LittleEndian.Uint64(words[i:])
		h.d ^= word
		h.round()
		h.a ^= word
	}
}

func (h sipHash) sum() uint64 {
	h.c ^= 0xff
	h.round()
	h.round()
	h.round()
	return h.a ^ h.b ^ h.c ^ h.d
}

// unescaped returns a label as it is in the packet. In the text of packet.Query.Name, unprintable bytes, dots and backslashes are written as \DDD in
// decimal.
func unescaped(label string) string {
	plain, escaped, found := strings.Cut(label, `\`)
	if !found {
		return label
	}
	code, err := strconv.ParseUint(escaped[:min(3, len(escaped))], 10, 8)
	if err != nil {
		return plain + `\` + unescaped(escaped)
	}
	return plain + string([]byte{byte(code)}) + unescaped(escaped[3:])
}
