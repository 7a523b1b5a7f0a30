package nft

import "github.com/floodwall/floodwall/internal/importer/saved"

// nftDefaultBurst is the burst of a limit in packets that says none (NFT_LIMIT_PKT_BURST_DEFAULT of net/netfilter/nft_limit.c).
const nftDefaultBurst = 5

// units are the times of a rate for which a policy has words.
var units = map[string]string{"second": "s", "minute": "min", "hour": "h", "day": "day"}

// limit reads a limit in packets. One in bytes has no equal: nft adds the bytes of a second to the burst.
func (r *ruleReader) limit(body any) {
	whole := func(key string) (n uint64) {
		if x, ok := member(body, key).(float64); ok && x > 0 && x == float64(uint64(x)) {
			n = uint64(x)
		}
		return n
	}
	per, _ := member(body, "per").(string)
	rateUnit, _ := member(body, "rate_unit").(string)
	above, _ := member(body, "inv").(bool)
	l := &saved.Limit{At: r.rule.At, What: "limit", Above: above, Rate: whole("rate"), Unit: units[per], Burst: whole("burst")}
	if l.Burst == 0 {
		l.Burst = nftDefaultBurst
	}
	bytes := rateUnit != "" && rateUnit != "packets"
	if bytes || l.Rate == 0 || l.Rate > saved.MaxPackets || l.Unit == "" || r.limited {
		r.unknown("limit")
		return
	}
	r.limited = true
	r.rule.Narrow([]saved.Cond{{Limit: l}})
}

// behindLimit notes that the rule asks for more behind its limit, which has counted the packets that this leaves out.
func (r *ruleReader) behindLimit() {
	for _, c := range r.rule.Alts {
		if r.limited && c.Limit != nil {
			c.Limit.Less = "the limit stands before another test of the rule and counts packets that this leaves out, too: the policy does not"
		}
	}
}
