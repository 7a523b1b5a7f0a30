package iptables

import (
	"fmt"
	"hash/fnv"
	"strings"
)

// Lengths of names in bytes, without the zero at the end.
const (
	maxChainName = 28 // XT_FUNCTION_MAXNAMELEN is 29 since iptables 1.8, and shorter names were allowed before
	maxSetName   = 31 // IPSET_MAXNAMELEN is 32
)

// nameSet are the names of chains or sets that are taken.
type nameSet map[string]bool

// take returns a name like text that is not taken, of at most so many bytes.
func (n nameSet) take(text string, most int) string {
	name := shortName(text, most)
	for i := 2; n[name]; i++ {
		name = shortName(fmt.Sprintf("%s-%d", text, i), most)
	}
	n[name] = true
	return name
}

// shortName is text, or its beginning and a hash when it is too long.
func shortName(text string, most int) string {
	if len(text) <= most {
		return text
	}
	h := fnv.New32a()
	h.Write([]byte(text))
	suffix := fmt.Sprintf("-%06x", h.Sum32()&0xffffff)
	return text[:most-len(suffix)] + suffix
}

// chainName is the name that a chain of ours would have, if it is not too long.
func (b *builder) chainName(what string) string {
	return strings.ToUpper(b.o.Name) + "-" + strings.ReplaceAll(what, ":", "-")
}

// mainChain is the name of one of the chains that hooks lead to.
func (b *builder) mainChain(what string) string { return shortName(b.chainName(what), maxChainName) }
