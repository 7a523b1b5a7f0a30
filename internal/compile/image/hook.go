// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"fmt"
	"io"
	"sync"

	"github.com/cilium/ebpf"
)

// Hook is the place in the kernel at which the program runs, with the form in which packets come there.
type Hook int

// The hooks. The C part is compiled once for XDP and once for tc (bpf/context.h).
const (
	XDP    Hook = iota
	TC          // the ingress of tc
	TCBare      // the ingress of tc on a device without a link layer: packets begin with the IP header
)

// ethernetHeader is the length of the Ethernet header in bytes.
const ethernetHeader = 14

// linkHeader is the constant of the C part with the length of the link layer's header.
const linkHeader = "link_header"

// Load returns a copy of the C part compiled for XDP. It panics if the embedded object is invalid, which no input can cause.
func Load() *ebpf.CollectionSpec { return XDP.load() }

// load returns a copy of the C part compiled for a hook.
func (h Hook) load() *ebpf.CollectionSpec {
	if h == XDP {
		return compiledXDP().Copy()
	}
	spec := compiledTC().Copy()
	length := uint32(ethernetHeader)
	if h == TCBare {
		length = 0
	}
	if err := spec.Variables[linkHeader].Set(length); err != nil {
		panic(fmt.Sprintf("embedded program: %v", err))
	}
	return spec
}

// The C part, compiled for XDP and for tc, in the format of gzip.
var (
	//go:embed floodwall_bpfel.o.gz
	objectXDP []byte

	//go:embed floodwalltc_bpfel.o.gz
	objectTC []byte
)

// An embedded object is parsed once, because that takes some 20 ms.
var (
	compiledXDP = sync.OnceValue(func() *ebpf.CollectionSpec { return parsed(objectXDP) })
	compiledTC  = sync.OnceValue(func() *ebpf.CollectionSpec { return parsed(objectTC) })
)

func parsed(object []byte) *ebpf.CollectionSpec {
	spec, err := parse(object)
	if err != nil {
		panic(fmt.Sprintf("embedded program: %v", err))
	}
	return spec
}

func parse(object []byte) (*ebpf.CollectionSpec, error) {
	unzipped, err := gzip.NewReader(bytes.NewReader(object))
	if err != nil {
		return nil, err
	}
	elf, err := io.ReadAll(unzipped)
	if err != nil {
		return nil, err
	}
	return ebpf.LoadCollectionSpecFromReader(bytes.NewReader(elf))
}
