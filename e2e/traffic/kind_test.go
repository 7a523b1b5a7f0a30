// SPDX-License-Identifier: Apache-2.0

package traffic_test

// kind is the main variation of an attempt. Most attempts also have other variations.
type kind int

const (
	plain kind = iota
	tags
	fragments
	tiny
	overlaps
	extensions
	options
	lengths
	datagramLengths
	ethertypes
	padding
	tunnels
	headers
	numKinds
)

func (k kind) String() string {
	return [...]string{"plain", "tags", "fragments", "tiny fragments", "overlaps", "extension headers", "IPv4 options",
		"IP lengths", "L4 lengths", "ethertypes", "padding", "tunnels", "odd headers"}[k]
}
