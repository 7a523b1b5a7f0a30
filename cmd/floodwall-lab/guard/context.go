// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// contextOf adds the context of a program's kind: struct xdp_buff, or struct sk_buff at tc. It sets the function that describes a frame in it.
func (m *Machine) contextOf(p *ebpf.Program) (err error) {
	switch kind := p.Type(); kind {
	case ebpf.XDP:
		m.addBuffer()
	case ebpf.SchedCLS:
		if m.socket, err = socketLayouts(); err != nil {
			return err
		}
		m.addSocketBuffer()
	default:
		return fmt.Errorf("a program of type %s, want XDP or SchedCLS", kind)
	}
	return nil
}

// addBuffer adds the context of XDP: the packet arrives at queue 0 of device 1, as in BPF_PROG_TEST_RUN.
func (m *Machine) addBuffer() {
	l := &m.layout
	m.context = m.private("struct xdp_buff", make([]byte, l.buff))
	queue := m.private("struct xdp_rxq_info", make([]byte, l.rxqInfo))
	putNumber(queue.bytes[l.device:][:8], m.addDevice())
	putNumber(m.context.bytes[l.rxq:][:8], queue.base)
	m.describe = func() {
		for _, set := range []struct{ at, to uint64 }{
			{l.data, m.data}, {l.dataMeta, m.data}, {l.dataEnd, m.dataEnd}, {l.dataHardStart, m.frame.base},
		} {
			putNumber(m.context.bytes[set.at:][:8], set.to)
		}
		putNumber(m.context.bytes[l.frameSize:][:4], frameSize)
	}
}

// addDevice adds the device, and returns its address.
func (m *Machine) addDevice() uint64 {
	device := m.private("struct net_device", make([]byte, m.layout.ifindex+4))
	putNumber(device.bytes[m.layout.ifindex:][:4], 1)
	return device.base
}

// addSocketBuffer adds the context of tc. The whole frame is linear, and nobody else uses it. It has no VLAN tag beside it, and was not joined from
// several: struct skb_shared_info, behind the frame, has zeros.
func (m *Machine) addSocketBuffer() {
	l := &m.socket
	m.context = m.private("struct sk_buff", make([]byte, l.size))
	device := m.addDevice()
	m.describe = func() {
		clear(m.context.bytes)
		for _, set := range []struct {
			at, to uint64
			size   int
		}{
			{l.length, m.dataEnd - m.data, 4}, {l.data, m.data, 8}, {l.head, m.frame.base, 8}, {l.end, frameSize - tailroom, 4},
			{l.control + l.dataEnd, m.dataEnd, 8}, {l.device, device, 8},
		} {
			putNumber(m.context.bytes[set.at:][:set.size], set.to)
		}
	}
}
