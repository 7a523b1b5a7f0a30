package lab

import (
	"fmt"
	"math"

	"github.com/cilium/ebpf"
)

// unite adapts the flows of a mix to the pages that they share. The pages have the length of the longest frame and contain zeros. Each flow writes
// the nonzero bytes of its frame, and cuts the page to its length.
func (s *Source) unite(templates []*template) error {
	longest := 0
	for _, t := range templates {
		longest = max(longest, len(t.frame))
	}
	s.frame = make([]byte, longest)
	for i, t := range templates {
		if f := &s.options.Flows[i]; l4Length(f)+len(f.Payload) > headerMax-headersBefore(f) {
			return fmt.Errorf("flow %d: headers and payload of a flow in a mix must fit in %d bytes", i, headerMax)
		}
		t.flow.Length = uint32(min(len(t.frame), headerMax))
		t.flow.Trim = uint32(longest - len(t.frame))
	}
	return nil
}

// loadMix loads the program that chooses one of the loaded flows for each packet.
func (s *Source) loadMix() (generator, error) {
	spec, err := labSpec()
	if err != nil {
		return generator{}, err
	}
	var recipe labRecipe
	s.pace(&recipe)
	vars := map[string]any{
		labVarFlow: recipe, labVarMixFlows: uint32(len(s.flows)), labVarMixBound: bounds(s.options.Flows),
		labVarSeed: mixSeed(s.options.Seed, maxFlows), labVarLimit: uint64(0),
	}
	for i := range s.flows {
		contents := ebpf.MapKV{Key: uint32(i), Value: uint32(s.flows[i].Program.FD())}
		spec.Maps[labMapFlows].Contents = append(spec.Maps[labMapFlows].Contents, contents)
	}
	return load(spec, labProgMix, vars)
}

// bounds divides [0, 2^32) by the weights of the flows.
func bounds(flows []Flow) (b [maxFlows]uint32) {
	weight := func(f *Flow) float64 {
		if f.Weight == 0 {
			return 1
		}
		return f.Weight
	}
	var total, sum float64
	for i := range flows {
		total += weight(&flows[i])
	}
	for i := range flows {
		sum += weight(&flows[i])
		b[i] = uint32(sum / total * math.MaxUint32)
	}
	b[len(flows)-1] = math.MaxUint32
	return b
}
