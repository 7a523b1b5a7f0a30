// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/kernel/features"
)

// Program is an image in the kernel, attached or not.
type Program struct {
	collection *ebpf.Collection
	spec       *ebpf.CollectionSpec
	image      *image.Image
	linear     *ebpf.Program                   // the same program for generic mode, loaded on first use
	at         map[image.Hook]*ebpf.Collection // the same programs for the hooks of tc, loaded on first use
	key        uint64                          // the key of questions
}

// Load loads an image and fills its maps. counters is the map of counters, or nil for a new map. Load does not attach the program.
func Load(im *image.Image, counters *ebpf.Map) (*Program, error) {
	return LoadAfter(im, Inherited{Counters: counters})
}

// LoadAfter is Load for a program that takes over maps of the previous generation.
func LoadAfter(im *image.Image, from Inherited) (*Program, error) {
	spec, err := im.Spec()
	if err != nil {
		return nil, err
	}
	return load(im, spec, from)
}

// load loads spec, a spec of the image.
func load(im *image.Image, spec *ebpf.CollectionSpec, from Inherited) (*Program, error) {
	spec.Maps[image.Counters].MaxEntries = countersSize(im.Slots)
	kept := from.replacements(spec)
	p, err := loadFilled(im, spec, kept)
	if err != nil {
		return nil, err
	}
	if kept[image.SynKeys] == nil {
		err = p.initKeys()
	} else if kept[image.CookiesSent] == nil {
		err = p.expectCookies()
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// loadFilled loads a spec of the image. The program takes over the kept maps. The image's content is written to all other maps at the same time: the
// kernel takes a tenth of a second to verify the program, and writing a long list takes as long.
func loadFilled(im *image.Image, spec *ebpf.CollectionSpec, kept map[string]*ebpf.Map) (*Program, error) {
	if err := setReadsKernel(im, spec); err != nil {
		return nil, err
	}
	fresh, err := newMaps(im, spec, kept)
	defer closeMaps(fresh) // the loaded program has its own descriptors
	if err != nil {
		return nil, explainLoad(err)
	}
	filled := make(chan error, 1)
	go func() { filled <- fill(im, fresh, kept) }()
	all := maps.Clone(fresh)
	maps.Copy(all, kept)
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: all})
	notFilled := <-filled
	if err != nil {
		return nil, explainLoad(err)
	}
	p := &Program{collection: collection, spec: spec, image: im, at: map[image.Hook]*ebpf.Collection{}}
	p.key, _ = im.Constants["question_key"].(uint64)
	err = notFilled
	if err == nil && kept[image.ReplyFilter] == nil {
		err = p.initReplySecrets() // with keys of zero all packets would belong to one flow
	}
	if err == nil && kept[image.ZoneTimes] == nil {
		err = p.initZoneKey()
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// setReadsKernel sets the constant of that name.
func setReadsKernel(im *image.Image, spec *ebpf.CollectionSpec) error {
	if err := spec.Variables[image.ReadsKernel].Set(im.Egress && features.ReadsKernel()); err != nil {
		return fmt.Errorf("constant %s: %w", image.ReadsKernel, err)
	}
	return nil
}

// newMaps creates the maps of a spec for which the image has content, except the kept ones. The caller must close the returned maps, also if newMaps
// fails.
func newMaps(im *image.Image, spec *ebpf.CollectionSpec, kept map[string]*ebpf.Map) (map[string]*ebpf.Map, error) {
	fresh := map[string]*ebpf.Map{}
	for name := range im.Shapes {
		m := spec.Maps[name]
		if m == nil || m.Type != ebpf.Array || kept[name] != nil {
			continue
		}
		var err error
		if fresh[name], err = ebpf.NewMap(m); err != nil {
			return fresh, fmt.Errorf("map %s: %w", name, err)
		}
	}
	return fresh, nil
}

func closeMaps(of map[string]*ebpf.Map) {
	for _, m := range of {
		m.Close()
	}
}

// explainLoad adds the cause or the remedy to an error of loading, if it is known.
func explainLoad(err error) error {
	switch {
	case errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("loading the program: not enough memory for its tables: %w", err)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("loading the program: %w (it takes root, or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON)", err)
	}
	return fmt.Errorf("loading the program: %w", err)
}

// fill writes the image's content to the fresh maps. It discards the content for the kept maps.
func fill(im *image.Image, fresh, kept map[string]*ebpf.Map) error {
	memory, release, err := memoryOf(fresh)
	if err != nil {
		return err
	}
	defer release()
	all := maps.Clone(memory)
	for name, m := range kept {
		if shape, ok := im.Shapes[name]; ok && m.Type() == ebpf.Array {
			all[name] = make([]byte, shape.Size())
		}
	}
	return im.Fill(all)
}

// initKeys sets random keys of cookies and of flows, if the program has these keys.
func (p *Program) initKeys() error {
	memory, release, err := p.Memory(image.SynKeys)
	if err != nil {
		return err
	}
	defer release()
	if keys := memory[image.SynKeys]; keys != nil {
		initKeys(keys)
	}
	return nil
}

// initReplySecrets sets random keys of the table of reply flows, if the program has one. Each key is odd, so a multiplication by it loses no bit.
func (p *Program) initReplySecrets() error {
	memory, release, err := p.Memory(image.ReplyFilter)
	if err != nil {
		return err
	}
	defer release()
	if talk := memory[image.ReplyFilter]; talk != nil {
		rand.Read(talk[:image.ReplySecretsSize]) // does not fail
		for i := 0; i < image.ReplySecretsSize; i += 8 {
			talk[i] |= 1
		}
	}
	return nil
}

// initZoneKey sets a random key for the hashes of names, if the program has one. With a known key a sender could construct names with equal hashes.
func (p *Program) initZoneKey() error {
	memory, release, err := p.Memory(image.ZoneTimes)
	if err != nil {
		return err
	}
	defer release()
	if times := memory[image.ZoneTimes]; times != nil {
		rand.Read(times[:image.ZoneKeySize]) // does not fail
	}
	return nil
}

// expectCookies marks every connection as one to which a cookie was sent. This is needed because another program has sent cookies without recording
// them in this map. These marks expire like other marks.
func (p *Program) expectCookies() error {
	memory, release, err := p.Memory(image.CookiesSent)
	if err != nil {
		return err
	}
	defer release()
	note := sentNote(image.Monotonic())
	for i := range memory[image.CookiesSent] {
		memory[image.CookiesSent][i] = note
	}
	return nil
}

// Map returns the named map of the program, or nil when there is none. The map is valid until Close.
func (p *Program) Map(name string) *ebpf.Map { return p.collection.Maps[name] }

// Memory maps the named array maps into memory, until release is called. It leaves out maps that the program does not have, and per-CPU maps.
func (p *Program) Memory(names ...string) (memory map[string][]byte, release func(), err error) {
	named := map[string]*ebpf.Map{}
	for _, name := range names {
		if m := p.Map(name); m != nil && m.Type() == ebpf.Array {
			named[name] = m
		}
	}
	return memoryOf(named)
}

// memoryOf maps array maps into memory, until release is called.
func memoryOf(arrays map[string]*ebpf.Map) (memory map[string][]byte, release func(), err error) {
	memory = map[string][]byte{}
	release = func() {
		for _, m := range memory {
			unmap(m)
		}
	}
	for name, m := range arrays {
		shape := image.Shape{ValueSize: m.ValueSize(), Entries: m.MaxEntries()}
		if memory[name], err = mapMemory(m, shape.Size()); err != nil {
			delete(memory, name)
			release()
			return nil, nil, fmt.Errorf("map %s: %w", name, err)
		}
	}
	return memory, release, nil
}

// Native returns the program for drivers with native XDP.
func (p *Program) Native() *ebpf.Program { return p.collection.Programs[image.Program] }

// Linear returns the same program for generic mode, in which the kernel makes each frame linear. It is loaded on first use.
func (p *Program) Linear() (*ebpf.Program, error) {
	if p.linear != nil {
		return p.linear, nil
	}
	spec := p.spec.Copy()
	image.Linear(spec)
	for _, m := range spec.Maps {
		m.Contents = nil
	}
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: p.collection.Maps})
	if err != nil {
		return nil, explainLoad(err)
	}
	defer collection.Close()
	p.linear = collection.DetachProgram(image.Program)
	return p.linear, nil
}

// At returns the programs for a hook of tc. They share all maps with the programs for XDP, except the constants. They are loaded on first use, and
// closed with p.
func (p *Program) At(h image.Hook) (*ebpf.Collection, error) {
	if c := p.at[h]; c != nil {
		return c, nil
	}
	spec, err := p.image.SpecAt(h)
	if err != nil {
		return nil, err
	}
	if h == image.TC { // the programs beside it are those for XDP
		image.Alone(spec)
	}
	if err := setReadsKernel(p.image, spec); err != nil {
		return nil, err
	}
	shared := map[string]*ebpf.Map{}
	for name, m := range p.collection.Maps {
		if spec.Maps[name] == nil || name == image.Constants {
			continue
		}
		shared[name] = m
		spec.Maps[name] = p.spec.Maps[name].Copy()
		spec.Maps[name].Contents = nil
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: shared})
	if err != nil {
		return nil, explainLoad(err)
	}
	p.at[h] = c
	return c, nil
}

// Ingress returns the program for packets that XDP has passed. It returns nil when the image has none.
func (p *Program) Ingress() *ebpf.Program { return p.side(entering) }

// Egress returns the program for packets that leave. It returns nil when the image has none.
func (p *Program) Egress() *ebpf.Program { return p.side(leaving) }

func (p *Program) side(side Mode) *ebpf.Program { return p.collection.Programs[string(side)] }

// Close closes the file descriptors. Attached and pinned programs stay.
func (p *Program) Close() {
	p.collection.Close()
	if p.linear != nil {
		p.linear.Close()
	}
	for _, c := range p.at {
		c.Close()
	}
}
