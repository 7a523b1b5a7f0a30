package compile

import "github.com/floodwall/floodwall/internal/ir"

type names struct{}

func compileNames(*ir.Program) (*names, error) { return &names{}, nil }

func (*names) part() part { return part{} }

func (*names) bits(ir.NameMatch) uint32 { return 0 }
