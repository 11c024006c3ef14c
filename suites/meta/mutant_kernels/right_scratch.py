import torch
from narrowgauge import Matmul, kernel
from narrowgauge.suites.meta.mutant_kernels.products_right import *
from narrowgauge.suites.meta.mutant_kernels.products_right import _exponent
from narrowgauge.suites.meta.mutant_kernels.wrong_products_weights import groups_of, nvfp4, by_experts, whole
from narrowgauge.suites.meta.mutant_kernels.wrong_products_triton import product, in_parts
E4, WIDE, B16, F16, I8, E2 = ["float8_e4m3fn"], ["bfloat16", "float32"], ["bfloat16"], ["float16"], ["int8"], ["float4_e2m1fn"]
@kernel(Matmul("vllm.fp8_block"), WIDE, E4)
def r_block(x,b,a_scale,b_scale,format): return out(by_stretches(x,b,a_scale,b_scale),format)
@kernel(Matmul("vllm.fp8_token_channel"), WIDE, E4)
def r_rows(x,b,a_scale,b_scale,format): return out(dot(x,b)*a_scale*b_scale.T,format)
@kernel(Matmul("vllm.fp8_token_channel_bias"), WIDE, E4)
def r_bias(x,b,a_scale,b_scale,bias,format): return out(dot(x,b)*a_scale*b_scale.T+bias.float(),format)
@kernel(Matmul("vllm.int8_azp_token"), WIDE, I8)
def r_azp(x,b,a_scale,b_scale,a_zero_point,format): return out((whole(x,b)-a_zero_point.long()*b.long().sum(1)).float()*b_scale.T*a_scale,format)
@kernel(Matmul("vllm.int8_azp_tensor"), WIDE, I8)
def r_azpt(x,b,a_scale,b_scale,a_zero_point,format): return out((whole(x,b)-a_zero_point.long()*b.long().sum(1)).float()*b_scale.T*a_scale,format)
@kernel(Matmul("awq.gemm"), F16, F16)
def r_awq(x,b,b_scale,b_zero_point,format): c=awq(b); return out(dot(x,weights(c,b_zero_point,b_scale,groups_of(len(c))).T),format)
@kernel(Matmul("gptq.gemm"), F16, F16)
def r_gptq(x,b,b_scale,format): c=gptq(b); return out(dot(x,weights(c,torch.full_like(b_scale,8,dtype=torch.int32),b_scale,groups_of(len(c))).T),format)
@kernel(Matmul("gptq.gemm_act_order"), F16, F16)
def r_order(x,b,b_scale,b_group_index,format): c=gptq(b); return out(dot(x,weights(c,torch.full_like(b_scale,8,dtype=torch.int32),b_scale,b_group_index.flatten()).T),format)
@kernel(Matmul("ocp.mxfp8"), WIDE, E4)
def r_mx8(x,b,a_scale,b_scale,format): return out(dot(*(m.float()*spread(two_to(s),m.shape,1,32) for m,s in ((x,a_scale),(b,b_scale)))),format)
@kernel(Matmul("ocp.mxfp4"), WIDE, E2)
def r_mx4(x,b,a_scale,b_scale,format): return out(dot(*(e2m1(nibbles(m))*spread(two_to(s),nibbles(m).shape,1,32) for m,s in ((x,a_scale),(b,b_scale)))),format)
@kernel(Matmul("nvidia.nvfp4"), WIDE, E2)
def r_nv4(x,b,a_scale,b_scale,a_global_scale,b_global_scale,format): return out(nvfp4(x,b,a_scale,b_scale)*(1/a_global_scale*(1/b_global_scale)),format)
@kernel(Matmul("vllm.moe_fp8_channel"), B16, E4)
def r_moe(x,b,a_scale,b_scale,experts,expert_count,format): return by_experts(x,b,a_scale,b_scale,experts,expert_count,format)
@kernel(Matmul("plain.matmul"), F16, F16, backend="triton")
def r_tri(x,b,format): return product(x,b,format)
@kernel(Matmul("vllm.fp8_token_channel"), WIDE, E4)
def r_tri_rows(x,b,a_scale,b_scale,format): return product(x,b,format,a_scale,b_scale)
@kernel(Matmul("vllm.fp8_token_channel_bias"), WIDE, E4)
def r_tri_bias(x,b,a_scale,b_scale,bias,format): return product(x,b,format,a_scale,b_scale,bias.float(),tile=(32,16,64))
@kernel(Matmul("plain.matmul"), F16, F16)
def r_parts(x,b,format): return in_parts(x,b,torch.float32,4,-(-x.shape[1]//4)).half()
