#!/bin/sh
# cyvcf2 0.34.0: a sample without reads has two, all of them of the variant, where a position has three alleles, and
# four where it has five.
#
# A sample whose depth was not measured has a dot in VCF, for all its alleles together (VCF 4.3, 1.6.2: trailing
# and missing fields). The library has -1 then; but it adds the numbers that stand for "missing" and "end of
# the list" in 32 bits before it looks, and of three or five alleles the sum wraps to a small positive number, so that
# a filter for such samples takes them for measured, with a frequency of the variant of 1. With two or four
# alleles it is -1. A position with several alleles is what callers make of many samples together, where most
# samples are without reads somewhere. vcfpy 0.14.2 has none. Seen (depths of the sample "./.:.", and frequency):
#
#   2 alleles: depth -1, of the variant -1, frequency -1.0; vcfpy []
#   3 alleles: depth 2, of the variant 2, frequency 1.0; vcfpy []
#   4 alleles: depth -1, of the variant -1, frequency -1.0; vcfpy []
#   5 alleles: depth 4, of the variant 4, frequency 1.0; vcfpy []
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q cyvcf2==0.34.0 vcfpy==0.14.2
cd "$work"
cat > look.py <<'END'
import cyvcf2
import vcfpy

HEAD = """##fileformat=VCFv4.3
##contig=<ID=chr1,length=100000>
##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">
##FORMAT=<ID=AD,Number=R,Type=Integer,Description="Reads of each allele">
#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\tmeasured\tmissing
"""
VARIANTS = ("C", "G", "T", "AA")
with open("calls.vcf", "w") as file:
    file.write(HEAD)
    for count in range(1, 5):
        reads = ",".join(["9"] * (count + 1))
        fields = (
            "chr1",
            str(100 + count),
            ".",
            "A",
            ",".join(VARIANTS[:count]),
            *[".", ".", "."],
            "GT:AD",
            f"0/1:{reads}",
            "./.:.",
        )
        file.write("\t".join(fields) + "\n")
for call, plain in zip(cyvcf2.VCF("calls.vcf"), vcfpy.Reader.from_path("calls.vcf"), strict=True):
    print(
        f"{len(call.ALT) + 1} alleles: depth {call.gt_depths[1]}, "
        f"of the variant {call.gt_alt_depths[1]}, frequency {call.gt_alt_freqs[1]}; "
        f"vcfpy {plain.call_for_sample['missing'].data['AD']}"
    )
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
