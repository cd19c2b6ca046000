"""Programs that JAX makes: each is one expression over random arrays, in several element types.

The names in an expression: x, y: arrays of the type that is tested, with elements in [-3, 3] (signed integers: in
[-15, 15]; unsigned integers: in [0, 15]); u: an array of this type in (0, 1); i: s32 indices from 0 to 4; b: an array
of type pred; m: a square matrix; spd: a positive definite matrix; x4, k4, g4: the input and two kernels of
convolutions; m3: three matrices; key: a random key; T: the element type.
"""

import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from cases import Case, NAMES, DTYPES

FLOAT, WIDE, COMPLEX = ["f32", "f64", "bf16", "f16"], ["f32", "f64"], ["c64", "c128"]
INT = ["s32", "u8", "s64", "s8", "u32"]
EPSILON = {"f32": 2e-5, "f64": 1e-11, "bf16": 3e-2, "f16": 4e-3, "c64": 5e-5, "c128": 1e-11}

UNARY = """abs acos acosh asin asinh atan atanh cbrt ceil cos cosh digamma erf erf_inv erfc exp exp2 expm1 floor
lgamma log log1p logistic neg round rsqrt sign sin sinh sqrt square tan tanh reciprocal bessel_i0e bessel_i1e
is_finite""".split()
SPECIAL = """bernoulli(5) bessel_jn(u,v=2) betainc(u,u+1,u) betaln(u,u+1) digamma(u) entr(u) erf(x) erfc(x) erfinv(x/4)
exp1(u) expi(u) expit(x) expn(2,u) factorial(u) gamma(u+1) gammainc(u,u+1) gammaincc(u,u+1) gammaln(u) gammasgn(x)
hyp1f1(u,u+1,u) i0(x) i0e(x) i1(x) i1e(x) kl_div(u,u+1) log_ndtr(x) log_softmax(x) logit(u) logsumexp(x,axis=1)
multigammaln(u+3,2) ndtr(x) ndtri(u) poch(u,u) polygamma(2,u+1) rel_entr(u,u) softmax(x) spence(u) xlog1py(x,u)
xlogy(x,u) zeta(u+2,u+1) fresnel(x) sici(x)""".split()
NN = """celu elu gelu glu hard_sigmoid hard_silu hard_swish hard_tanh leaky_relu log_sigmoid log_softmax relu relu6 selu
sigmoid silu softmax softplus soft_sign sparse_plus squareplus mish standardize swish""".split()
REDUCE = """sum(x,0) sum(x) prod(x,1) max(x,0) min(x) mean(x,1) std(x,0) var(x) argmax(x,1) argmin(x,0) cumsum(x,1)
cumprod(x,0) median(x,1) ptp(x,0) nansum(x) nanmax(x,0) quantile(x,0.3,axis=1) percentile(x,70.) average(x,0)
count_nonzero(x) linalg.norm(x) linalg.norm(x,axis=0) linalg.norm(x,1) linalg.norm(x,'nuc')""".split()
SHAPE = """flip(x) roll(x,2) roll(x,1,axis=1) tile(x,(2,1)) repeat(x,3,axis=0) rot90(x) diag(x) tril(x) triu(x,1)
diff(x) trace(x) kron(x,y) outer(x[0],y[0]) vstack((x,y)) stack((x,y),1) split(x,2,axis=1)[1] pad(x,2)
pad(x,1,mode='reflect') pad(x,((1,2),(0,3)),mode='edge') take(x,i) take_along_axis(x,i[:4,None]%4,1) swapaxes(x,0,1)
moveaxis(x,0,1) expand_dims(x,1) squeeze(x[:1]) ravel(x) broadcast_to(x[0],(3,4)) where(b,x,y)
delete(x,1,axis=0) insert(x,1,y[0],axis=0) append(x,y) block([[x,y],[y,x]]) fliplr(x) meshgrid(x[0],y[0])[1]
tri(4,5,1,dtype=T) eye(4,3,1,dtype=T) vander(x[0]) convolve(x[0],y[1]) correlate(x[0],y[1],mode='same')
interp(x[0],jnp.sort(y[0]),x[1]) searchsorted(jnp.sort(x[0]),y) digitize(x,jnp.sort(y[0])) bincount(i,length=6)
histogram(x,bins=5)[0] unique(i,size=5) sort(x,axis=0) argsort(x,axis=1) partition(x,2) lexsort((i,i[::-1]))
nonzero(b,size=5)[0] select([b,~b],[x,y]) piecewise(x,[b],[1,2]) cross(x[:,:3],y[:,:3]) einsum('ij,kj->ik',x,y)
einsum('ij,ij->j',x,y) tensordot(x,y,2) dot(x,y.T) vdot(x,y) inner(x,y) matmul(x,y.T) nan_to_num(x/0) clip(x,-1,1)
maximum(x,y) minimum(x,y) fmax(x,y) hypot(x,y) logaddexp(x,y) arctan2(x,y) power(u,y) float_power(u,2) fmod(x,y)
mod(x,y) remainder(x,y) floor_divide(x,y) divmod(x,y) copysign(x,y) nextafter(x,y) ldexp(x,i[:4,None]) frexp(x)
modf(x) signbit(x) sinc(x) heaviside(x,y) isclose(x,y) allclose(x,x) gradient(x[0]) trapezoid(x) cov(x) corrcoef(x)
polyval(x[0],y) apply_along_axis(jnp.cumsum,0,x) unwrap(x) around(x,1) trunc(x) rint(x) deg2rad(x) isnan(x)
real(x) conj(x) angle(x) array_equal(x,y) nanmedian(x)""".split()
INTEGER = """x+y x-y x*y x//jnp.where(y==0,1,y) x%jnp.where(y==0,1,y) x&y x|y x^y ~x x<<1 x>>1 x==y x<y x**2
jnp.gcd(x,y) jnp.lcm(x,y) lax.population_count(x) lax.clz(x) jnp.sign(x) jnp.abs(x) jnp.sum(x,0) jnp.cumsum(x,1)
jnp.max(x) jnp.sort(x) jnp.argmax(x,1) jnp.dot(x,y.T) x.astype(jnp.float32) jnp.bitwise_count(x)
lax.shift_right_logical(x,y&7) jnp.median(x) lax.top_k(x,2) jnp.packbits(x>0) jnp.prod(x,1) jnp.clip(x,1,2)
lax.rem(x,jnp.where(y==0,1,y)) jnp.unique(x,size=4)""".split()
LINALG = """linalg.det(m) linalg.slogdet(m) linalg.inv(m) linalg.solve(m,m[...,:1]) linalg.cholesky(spd)
linalg.qr(m)[1]**2 linalg.svd(m,compute_uv=False) linalg.eigvalsh(spd) linalg.pinv(m) linalg.matrix_power(m,3)
linalg.matrix_rank(m) linalg.cond(m) linalg.lstsq(m,m[:,:2])[0] linalg.multi_dot([m,m,m]) linalg.tensorinv(m,ind=1)
linalg.norm(m,2) linalg.matrix_norm(m) linalg.vector_norm(m)""".split()
SCIPY = """linalg.cho_solve((jax.scipy.linalg.cholesky(spd,lower=True),True),m) linalg.lu(m) linalg.lu_factor(m)[0]
linalg.solve_triangular(spd,m) linalg.expm(m/9) linalg.block_diag(m,m) linalg.toeplitz(m[0]) linalg.polar(m)[1]
stats.norm.logpdf(x) stats.gamma.logpdf(u,2.) stats.t.logpdf(x,3.) stats.beta.cdf(u,2.,3.) stats.norm.ppf(u)
stats.poisson.logpmf(i,2.) signal.convolve(x,y) ndimage.map_coordinates(x,[y,x],1) integrate.trapezoid(x)
interpolate.RegularGridInterpolator((jnp.arange(4.),),jnp.arange(4.))(u.reshape(-1,1)) fft.dct(x) fft.idct(x)
cluster.vq.vq(x,y)[0]""".split()
FFT = """fft(x) ifft(x) rfft(x) irfft(x) fft2(x) ifft2(x) rfft2(x) irfft2(x) fftn(x) rfftn(x) hfft(x) ihfft(x)
fftshift(x) fftfreq(7) fft(x,7) rfft(x,9,axis=0) irfft(x,5)""".split()
RANDOM = """bits(key,(5,)) bits(key,(3,),'uint8') uniform(key,(4,3),T) normal(key,(5,),T) randint(key,(6,),-3,9)
permutation(key,9) choice(key,7,(3,),replace=False) bernoulli(key,0.3,(6,)) categorical(key,x) exponential(key,(4,),T)
gumbel(key,(4,),T) laplace(key,(4,),T) logistic(key,(4,),T) truncated_normal(key,-1.,1.,(4,),T) cauchy(key,(4,),T)
gamma(key,2.,(4,),T) beta(key,2.,3.,(4,),T) dirichlet(key,jnp.ones(3,T),(2,),T) poisson(key,3.,(5,)) rayleigh(key,u)
split(key,3) fold_in(key,7) weibull_min(key,1.,2.,(4,),T) t(key,3.,(4,),T) rademacher(key,(5,)) pareto(key,2.,(4,),T)
multivariate_normal(key,x[0],jnp.eye(4,dtype=T)) orthogonal(key,3)**2 geometric(key,0.4,(5,)) binomial(key,5,0.4,(4,))
ball(key,3,shape=(2,)) maxwell(key,(4,)) loggamma(key,2.,(3,)) triangular(key,0.,.5,1.,(4,))
chisquare(key,3.,(3,))""".split()
LAX = """lax.conv_general_dilated(x4,k4,(1,1),'SAME') lax.conv_general_dilated(x4,k4,(2,1),'VALID',rhs_dilation=(1,2))
lax.conv_general_dilated(x4,k4,(1,1),[(2,1),(0,2)],lhs_dilation=(2,1))
lax.conv_general_dilated(x4,g4,(1,1),'SAME',feature_group_count=2)
lax.conv_general_dilated(x4.transpose(0,2,3,1),k4.transpose(2,3,1,0),(1,2),'SAME',dimension_numbers=('NHWC','HWIO','NHWC'))
lax.conv_transpose(x4.transpose(0,2,3,1),k4.transpose(2,3,1,0),(2,2),'SAME')
lax.reduce_window(x,-jnp.inf,lax.max,(2,2),(1,2),'SAME') lax.reduce_window(x,0.,lax.add,(2,2),(1,1),'VALID')
jax.grad(lambda(x):lax.reduce_window(x,-jnp.inf,lax.max,(2,2),(1,1),'VALID').sum())(x) lax.top_k(x,3)
lax.approx_max_k(x,2) lax.cummax(x,axis=1) lax.cumlogsumexp(x,axis=0) lax.cumprod(x,axis=1,reverse=True)
lax.reduce_precision(x,5,7) lax.clamp(x[0,0]*0-1,x,x[0,0]*0+1) lax.sort((x,y),dimension=1,num_keys=2) lax.igamma(u,u+1)
lax.nextafter(x,y) lax.random_gamma_grad(u+1,u) lax.igamma_grad_a(u,u+1) lax.polygamma(1.+0*u,u+1) lax.zeta(u+2,u)
lax.dynamic_slice(x,(i[0],i[1]*2),(2,2)) lax.dynamic_update_slice(x,y[:2,:2],(i[0]*9,i[1]))
lax.gather(x,i[:,None],lax.GatherDimensionNumbers((1,),(0,),(0,)),(1,4),mode='clip') lax.expand_dims(x,(0,2))
x.at[i].add(y[:1].repeat(5,0)) x.at[i].set(1.) x.at[i].mul(2.) x.at[i,i].max(9.) x.at[1:,::2].min(0.) x[i] x[i,i-1]
x.at[i].get(mode='fill',fill_value=7.) x.at[i*3].add(1.,mode='drop') lax.scan(lambda(c,a):(c+a,c*a),x[0],x)
lax.fori_loop(0,5,lambda(k,c):c*0.5+k,x) lax.while_loop(lambda(c):jnp.sum(jnp.abs(c))>1,lambda(c):c/2,x)
lax.cond(i[0]>2,jnp.sin,jnp.cos,x) lax.switch(i[0],[jnp.sin,jnp.cos,jnp.tanh],x) lax.map(jnp.sin,x)
lax.associative_scan(jnp.add,x) jax.vmap(jnp.dot)(x,y) jax.grad(lambda(x):jnp.sum(jnp.tanh(x)**3))(x)
jax.hessian(lambda(x):jnp.sum(x**3))(x[0]) jax.jacfwd(jnp.sin)(x[0]) jax.checkpoint(lambda(x):jnp.sin(x)*2)(x)
jax.grad(lambda(x):jnp.sum(jax.nn.relu(x)*jax.nn.silu(x)))(x) jax.linearize(jnp.sin,x)[0] jax.jvp(jnp.exp,(x,),(y,))
jax.vjp(jnp.sin,x)[1](y) lax.dot_general(x,y,(((1,),(1,)),((),()))) lax.dot_general(x,y,(((1,),(1,)),((0,),(0,))))
lax.ragged_dot(x,m3,jnp.array([1,2,1])) lax.batch_matmul(x4,jnp.swapaxes(x4,2,3)) lax.linalg.cholesky(spd)
lax.linalg.triangular_solve(spd,m,left_side=True) lax.linalg.lu(m)[0] lax.linalg.eigh(spd)[1]
lax.linalg.tridiagonal_solve(x[0],u[0]+9,x[1],y[:1].T) lax.argmax(x,1,jnp.int32) lax.collapse(x4,1,3) lax.rev(x,(1,))
lax.select_n(b,x,y) lax.optimization_barrier(x) lax.rng_bit_generator(jnp.arange(4,dtype='uint32'),(5,))
lax.custom_linear_solve(lambda(v):spd@v,y[0],lambda(f,v):jnp.linalg.solve(spd,v)) lax.linalg.householder_product(m,x[0])
jax.image.resize(x,(7,5),'linear') jax.image.resize(x,(3,9),'cubic') jax.image.resize(x,(2,2),'nearest')
jax.nn.dot_product_attention(x4,x4,x4) jax.nn.one_hot(i,6) jax.nn.logsumexp(x) jax.ops.segment_sum(x,i[:4],5)
jax.ops.segment_max(x,i[:4],5) lax.erf_inv(u) lax.stop_gradient(x) lax.betainc(u,u,u) lax.linalg.svd(m,compute_uv=False)
lax.linalg.svd(m)[1] lax.linalg.qr(m)[1]**2 lax.linalg.symmetric_product(m,m)""".split()


def expressions():
    """Yields (family, expression, element types)."""
    for f in UNARY:
        names = FLOAT + (COMPLEX if hasattr(lax, f) and f in "abs cos exp expm1 log log1p logistic neg sign sin sqrt "
                                                             "rsqrt tan tanh square sinh cosh".split() else [])
        operand = "1+u" if f == "acosh" else "u" if f in ("acos", "asin", "atanh", "erf_inv", "log", "lgamma",
                                                          "digamma", "rsqrt", "sqrt", "log1p") else "x"
        yield f, f"lax.{f}({operand})", names
    yield from (("special", f"jax.scipy.special.{e}", WIDE) for e in SPECIAL)
    yield from (("nn", f"jax.nn.{f}(x)", FLOAT) for f in NN)
    yield from (("reduce", f"jnp.{e}", ["f32", "f64", "bf16"]) for e in REDUCE)
    yield from (("numpy", f"jnp.{e}", ["f32", "bf16"]) for e in SHAPE)
    yield from (("integer", e, INT) for e in INTEGER)
    yield from (("linalg", f"jnp.{e}", WIDE + COMPLEX) for e in LINALG)
    yield from (("scipy", f"jax.scipy.{e}", WIDE) for e in SCIPY)
    yield from (("fft", f"jnp.fft.{e}", ["f32", "f64", "c64"]) for e in FFT)
    yield from (("random", f"jax.random.{e}", ["f32", "bf16"]) for e in RANDOM)
    yield from (("lax", e, ["f32", "f64", "f16"]) for e in LAX)


def arguments(rng, name):
    dtype = DTYPES[name]

    def make(*dims, low=-3.0, high=3.0):
        values = rng.uniform(low, high, dims)
        if name in COMPLEX:
            values = values + 1j * rng.uniform(low, high, dims)
        if np.dtype(dtype).kind in "iu":
            values = np.abs(np.round(values * 5)) if np.dtype(dtype).kind == "u" else np.round(values * 5)
        return values.astype(dtype)

    m = make(4, 4)
    spd = (m @ np.conj(m.T) / 4 + np.eye(4) * 2).astype(dtype)
    return {"x": make(4, 4), "y": make(4, 4), "u": make(4, 4, low=0.05, high=0.95), "m": m, "spd": spd,
            "x4": make(2, 4, 5, 6), "k4": make(3, 4, 3, 2), "g4": make(4, 2, 3, 2), "m3": make(3, 4, 2),
            "i": rng.integers(0, 5, 5).astype(np.int32), "b": rng.random((4, 4)) < 0.5,
            "key": np.array([7, int(rng.integers(1 << 30))], np.uint32)}


def make_case(rng, family, expression, name):
    """Returns a case with jaxlib's results."""
    values = arguments(rng, name)
    body = re.sub(r"lambda\(([\w,]*)\):", r"lambda \1:", expression)
    used = [k for k in values if re.search(rf"\b{k}\b", body)]
    scope = {"jnp": jnp, "jax": jax, "lax": lax, "T": DTYPES[name]}
    function = jax.jit(eval(f"lambda {','.join(used)}: {body}", scope), keep_unused=True)
    inputs = [values[k] for k in used]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lowered = function.lower(*inputs)
        results = jax.tree.leaves(lowered.compile()(*inputs))
    text = lowered.compiler_ir("hlo").as_hlo_text(print_large_constants=True)
    expected = [np.asarray(r) for r in results]
    # A program is as exact as the least exact type in it. Attention, for example, computes in f32.
    max_epsilon = max((EPSILON[kind] for kind in EPSILON if f"{kind}[" in text), default=None)
    compare = []
    for r in expected:
        kind = NAMES[r.dtype]
        scale = float(np.nanmax(np.abs(np.where(np.isfinite(r), r, 0)).astype(np.float64))) if r.size else 0.0
        epsilon = max_epsilon if kind in EPSILON else None
        compare.append({"kind": "eq"} if epsilon is None else
                       {"kind": "close", "rtol": epsilon, "atol": float(f"{epsilon * max(1.0, scale):.2g}")})
    slug = re.sub(r"\W+", "_", re.sub(r"\b(lax|jnp|jax)\.", "", expression)).strip("_")[:60]
    return Case(f"{family}/{slug}_{name}", text, inputs, compare, expected)
